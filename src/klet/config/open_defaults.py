"""Open defaults: without `--config` upstream serves clients without authentication, on every address of the machine.

The settings are computed twice: with the defaults that apply, and with those of a configuration file, which serve no
anonymous client. What is open only in the first case is open by a default: then klet starts only on a loopback address.
"""

from collections.abc import Iterator

from klet.api.validation.formats import parse_ip
from klet.config.configuration import KubeletConfiguration
from klet.config.errors import ConfigError

_DEFAULTS = "by the defaults without --config"


def refuse_open_defaults(config: KubeletConfiguration, asked: KubeletConfiguration, *, is_standalone: bool) -> None:
    """Raise ConfigError if a server is open by default. `asked` has the defaults of a configuration file instead."""
    if problems := tuple(find_open_defaults(config, asked, is_standalone=is_standalone)):
        raise ConfigError("; ".join(problems))


def find_open_defaults(
    config: KubeletConfiguration, asked: KubeletConfiguration, *, is_standalone: bool
) -> Iterator[str]:
    """Name each server that would be open to other machines by default, and the settings to give."""
    address = parse_ip(config.address)
    if address is not None and address.is_loopback:
        return
    host = f"[{config.address}]" if ":" in config.address else config.address
    if config.enable_server and lets_everybody_in(config) and not lets_everybody_in(asked):
        yield (
            f"everybody who reaches {host}:{config.port} could run commands in every pod {_DEFAULTS}: "
            f"{_advise(is_standalone=is_standalone)}; or --address=127.0.0.1 (address); or --enable-server=false "
            "(enableServer); or, to let everybody in all the same, --anonymous-auth=true "
            "(authentication.anonymous.enabled) with --authorization-mode=AlwaysAllow (authorization.mode)"
        )
    elif config.enable_server and lets_every_token_in(config) and not lets_every_token_in(asked):
        yield (
            f"everybody with a token of the cluster, such as each pod has, could run commands in every pod by way of "
            f"{host}:{config.port} {_DEFAULTS}: give --authorization-mode=Webhook (authorization.mode); or, if that is "
            "meant, --authorization-mode=AlwaysAllow"
        )
    port = config.read_only_port
    if port > 0 and asked.read_only_port != port:
        yield (
            f"everybody who reaches {host}:{port} could read all pods {_DEFAULTS}: give --read-only-port=0 "
            f"(readOnlyPort); or, to serve it all the same, --read-only-port={port}"
        )


def lets_everybody_in(config: KubeletConfiguration) -> bool:
    """Return whether a request without any credentials may do everything."""
    return config.authentication.anonymous.enabled and config.authorization.mode == "AlwaysAllow"


def lets_every_token_in(config: KubeletConfiguration) -> bool:
    """Return whether a request with any token that the API server knows may do everything."""
    return config.authentication.webhook.enabled and config.authorization.mode == "AlwaysAllow"


def _advise(*, is_standalone: bool) -> str:
    known = "--client-ca-file=FILE (authentication.x509.clientCAFile)"
    if is_standalone:
        return f"give --anonymous-auth=false (authentication.anonymous.enabled) with {known}"
    return (
        "give --anonymous-auth=false (authentication.anonymous.enabled) with "
        f"{known} or --authentication-token-webhook (authentication.webhook.enabled), "
        "and --authorization-mode=Webhook (authorization.mode)"
    )
