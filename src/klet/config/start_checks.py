"""Rules that upstream finds broken only while it starts, checked before anything runs.

The texts keep upstream's prefixes, so that they read the same in a log. Certificates and kubeconfigs
that a setting names are only looked at, so that a wrong path is reported before anything starts; the parts read them
again.
"""

import re
from datetime import timedelta
from typing import Final

from klet.api.quantity import Quantity
from klet.api.sysctls import namespace_of, normalize_sysctl
from klet.config.configuration import KubeletConfiguration
from klet.config.errors import ConfigError, prefixed
from klet.config.files import ReadFile, quote_os_error
from klet.config.flags import KubeletFlags, check_node_ips, check_start_flags
from klet.config.gates import FeatureGates
from klet.config.manager_options import check_managers
from klet.config.reserved import effective_reservations, parse_qos_reserved
from klet.config.thresholds import parse_thresholds

TLS_VERSIONS: Final = ("VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13")
TLS_CIPHER_SUITES: Final = frozenset(
    [
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
        "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
        "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_RSA_WITH_AES_128_CBC_SHA",
        "TLS_RSA_WITH_AES_128_CBC_SHA256",
        "TLS_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_RSA_WITH_AES_256_CBC_SHA",
        "TLS_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_RSA_WITH_RC4_128_SHA",
    ]
)

_STRATEGIES: Final = ("Get", "Cache", "Watch")
_SYSCTL_SEGMENT: Final = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL_PATTERN: Final = rf"({_SYSCTL_SEGMENT}[\./])*({_SYSCTL_SEGMENT}|([a-z0-9][-_a-z0-9]*)?\*)"
_SYSCTL_LIMIT: Final = 253
_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_DEPENDENCIES: Final = "failed to construct kubelet dependencies: "
_RUN: Final = "failed to run Kubelet: "


def check_start(config: KubeletConfiguration, flags: KubeletFlags, gates: FeatureGates) -> None:
    """Raise ConfigError for the first setting with which the agent could not start."""
    with prefixed("failed to construct kubelet dependencies: "):
        _check_tls(config)
    with prefixed("failed to run Kubelet: "):
        _check_run(config, flags, gates)
        with prefixed("failed to create kubelet: "):
            _check_creation(config, flags)


def _check_tls(config: KubeletConfiguration) -> None:
    for name in config.tls_cipher_suites:
        if name not in TLS_CIPHER_SUITES:
            raise ConfigError(f"Cipher suite {name} not supported or doesn't exist: see tlsCipherSuites")
    if config.tls_min_version and config.tls_min_version not in TLS_VERSIONS:
        known = ", ".join(TLS_VERSIONS)
        raise ConfigError(f'unknown tls version "{config.tls_min_version}", write one of {known} in tlsMinVersion')


def _check_run(config: KubeletConfiguration, flags: KubeletFlags, gates: FeatureGates) -> None:
    check_start_flags(flags)
    _check_auth(config, is_standalone=flags.is_standalone)
    effective_reservations(config)
    parse_thresholds(config, ignore_allocatable=flags.experimental_allocatable_ignore_eviction)
    parse_qos_reserved(config.qos_reserved)
    check_managers(config, gates)


def _check_auth(config: KubeletConfiguration, *, is_standalone: bool) -> None:
    authentication = config.authentication
    is_open = authentication.anonymous.enabled or authentication.x509.client_ca_file
    if not (authentication.webhook.enabled or is_open):
        raise ConfigError(
            "no authentication method configured: set authentication.x509.clientCAFile, "
            "authentication.webhook.enabled or authentication.anonymous.enabled"
        )
    if authentication.webhook.enabled and is_standalone:
        raise ConfigError(
            "no client provided, cannot use webhook authentication: give --kubeconfig, or set "
            "authentication.webhook.enabled to false"
        )
    match config.authorization.mode:
        case "AlwaysAllow":
            pass
        case "Webhook":
            if is_standalone:
                raise ConfigError(
                    "no client provided, cannot use webhook authorization: give --kubeconfig, or set "
                    "authorization.mode to AlwaysAllow"
                )
        case "":
            raise ConfigError("no authorization mode specified: write AlwaysAllow or Webhook in authorization.mode")
        case mode:
            raise ConfigError(
                f"unknown authorization mode {mode}: write AlwaysAllow or Webhook in authorization.mode "
                "(--authorization-mode)"
            )


def _check_creation(config: KubeletConfiguration, flags: KubeletFlags) -> None:
    if config.sync_frequency <= timedelta():
        raise ConfigError(
            f"invalid sync frequency {config.sync_frequency // timedelta(microseconds=1) * 1000}: "
            "syncFrequency (--sync-frequency) must be greater than 0"
        )
    strategy = config.config_map_and_secret_change_detection_strategy
    if strategy not in _STRATEGIES:
        # Upstream looks at it only when there is an API server; what is mistyped is so everywhere.
        raise ConfigError(
            f"unknown configmap and secret manager mode: {strategy}, write one of {', '.join(_STRATEGIES)} in "
            "configMapAndSecretChangeDetectionStrategy"
        )
    try:
        Quantity.parse(config.container_log_max_size)
    except ValueError as error:
        raise ConfigError(f'containerLogMaxSize "{config.container_log_max_size}": {error}') from error
    check_node_ips(flags)
    for pattern in config.allowed_unsafe_sysctls:
        if len(pattern) > _SYSCTL_LIMIT or not re.fullmatch(_SYSCTL_PATTERN, pattern):
            raise ConfigError(
                f'sysctl "{pattern}" must have at most {_SYSCTL_LIMIT} characters and match regex {_SYSCTL_PATTERN}: '
                "see allowedUnsafeSysctls (--allowed-unsafe-sysctls)"
            )
        if namespace_of(normalize_sysctl(pattern)) is None:
            raise ConfigError(
                f'the sysctls "{pattern}" are not known to be namespaced: name others in allowedUnsafeSysctls '
                "(--allowed-unsafe-sysctls)"
            )


def check_given_files(config: KubeletConfiguration, flags: KubeletFlags, read_file: ReadFile) -> None:
    """Raise ConfigError for the first file that is missing or cannot be what it should be."""
    ca = config.authentication.x509.client_ca_file
    if ca:
        prefix = f"{_DEPENDENCIES}unable to load client CA file {ca}: "
        content = _read(ca, read_file, prefix=prefix)
        if _CERTIFICATE not in content:
            raise ConfigError(f"{prefix}data does not contain any valid RSA or ECDSA certificates")
    if config.enable_server:
        for field, path in (("tlsCertFile", config.tls_cert_file), ("tlsPrivateKeyFile", config.tls_private_key_file)):
            if path:
                _read(path, read_file, prefix=f"{_DEPENDENCIES}{field}: ")
    _check_kubeconfigs(flags, read_file)


def _check_kubeconfigs(flags: KubeletFlags, read_file: ReadFile) -> None:
    if not flags.kubeconfig:
        return
    try:
        _read(flags.kubeconfig, read_file, prefix=f"{_RUN}--kubeconfig: invalid kubeconfig: ")
    except ConfigError:
        # With a bootstrap kubeconfig the other one is written at the first start.
        if not flags.bootstrap_kubeconfig:
            raise
        prefix = f"{_RUN}--bootstrap-kubeconfig: unable to load bootstrap kubeconfig: "
        _read(flags.bootstrap_kubeconfig, read_file, prefix=prefix)


def _read(path: str, read_file: ReadFile, *, prefix: str) -> bytes:
    try:
        content = read_file(path)
    except OSError as error:
        raise ConfigError(f"{prefix}{quote_os_error(error, path)}") from error
    if not content:
        raise ConfigError(f"{prefix}{path} is empty")
    return content
