"""Files that a setting names and without which the agent cannot start: certificates and kubeconfigs.

They are only looked at here, so that a wrong path is reported before anything starts; the parts read them again.
"""

from typing import Final

from klet.config.configuration import KubeletConfiguration
from klet.config.errors import ConfigError
from klet.config.files import ReadFile, quote_os_error
from klet.config.flags import KubeletFlags

_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_DEPENDENCIES: Final = "failed to construct kubelet dependencies: "
_RUN: Final = "failed to run Kubelet: "


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
