"""Kubeconfig files: read them, and find the server and the credentials of a context.

Paths in the file are relative to it. Inline data wins over a file, as in client-go.
"""

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from klet.api.base import ApiObject, JsonObject, required
from klet.api.codec import DecodeError, convert, to_builtins
from klet.config.document import parse_document
from klet.config.errors import ConfigError, one_line
from klet.config.places import hide_credentials
from klet.kube.access import (
    Access,
    Authority,
    ExecPlugin,
    KeyPair,
    Login,
    NoVerification,
    PemSource,
    SystemAuthorities,
)
from klet.kube.errors import KubeconfigError
from klet.model.foreign_text import LONGEST_WORD, shorten

T = TypeVar("T")
LONGEST: Final = 4 << 20
"""Bytes of a file; one of a hundred clusters with their certificates has a tenth of that."""
_ZERO: Final = "must not hold a zero byte"
EXEC_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class ClusterFields(ApiObject, frozen=True, kw_only=True):
    """Where a server is and how to know it."""

    server: str = ""
    tls_server_name: str = msgspec.field(name="tls-server-name", default="")
    insecure_skip_tls_verify: bool = msgspec.field(name="insecure-skip-tls-verify", default=False)
    certificate_authority: str = msgspec.field(name="certificate-authority", default="")
    certificate_authority_data: str = msgspec.field(name="certificate-authority-data", default="")
    proxy_url: str = msgspec.field(name="proxy-url", default="")


class ExecEnv(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)
    value: str = required(str)


class ExecFields(ApiObject, frozen=True, kw_only=True):
    """A program that prints credentials."""

    api_version: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[ExecEnv, ...] = ()
    install_hint: str = ""
    provide_cluster_info: bool = False


class UserFields(ApiObject, frozen=True, kw_only=True):
    """Credentials. What klet cannot do (basic auth, auth-provider) is refused, not ignored."""

    client_certificate: str = msgspec.field(name="client-certificate", default="")
    client_certificate_data: str = msgspec.field(name="client-certificate-data", default="")
    client_key: str = msgspec.field(name="client-key", default="")
    client_key_data: str = msgspec.field(name="client-key-data", default="")
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    username: str = ""
    exec: ExecFields | None = None
    auth_provider: JsonObject | None = msgspec.field(name="auth-provider", default=None)


class ContextFields(ApiObject, frozen=True, kw_only=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class NamedCluster(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)
    cluster: ClusterFields = ClusterFields()


class NamedUser(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)
    user: UserFields = UserFields()


class NamedContext(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)
    context: ContextFields = ContextFields()


class Kubeconfig(ApiObject, frozen=True, kw_only=True):
    """The whole file."""

    api_version: str = ""
    kind: str = ""
    clusters: tuple[NamedCluster, ...] = ()
    users: tuple[NamedUser, ...] = ()
    contexts: tuple[NamedContext, ...] = ()
    current_context: str = msgspec.field(name="current-context", default="")


def load_kubeconfig(path: Path, *, context: str = "") -> Access:
    """Read a kubeconfig; the context is the given one, else the file's current one."""
    try:
        with path.open("rb") as file:
            data = file.read(LONGEST + 1)
        if len(data) > LONGEST:
            raise KubeconfigError(f"invalid kubeconfig: {path}: longer than {LONGEST} bytes")
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"invalid kubeconfig: {path}: {error}") from error
    return parse_kubeconfig(text, path=path, context=context)


def parse_kubeconfig(text: str, *, path: Path, context: str = "") -> Access:
    """Return what the text of a kubeconfig at `path` means."""
    try:
        config = convert(Kubeconfig, parse_document(text.encode()).fields if text.strip() else {})
    except (ConfigError, DecodeError) as error:
        raise KubeconfigError(f"invalid kubeconfig: {path}: {' '.join(str(error).split())}") from error
    return _Reader(config, path).access(context)


class _Reader:
    """One file and what its names mean."""

    def __init__(self, config: Kubeconfig, path: Path) -> None:
        self._config = config
        self._path = path

    def access(self, context: str) -> Access:
        fields = self._context(context or self._config.current_context)
        cluster = self._find("cluster", fields.cluster, {each.name: each.cluster for each in self._config.clusters})
        where = f'cluster "{_shown(fields.cluster)}"'
        if not _is_address(cluster.server):
            shown = _shown(hide_credentials(cluster.server))
            raise self._error(f'{where}: server: "{shown}" is not an address such as https://host:6443')
        if cluster.proxy_url and not _is_address(cluster.proxy_url):
            shown = _shown(hide_credentials(cluster.proxy_url))
            raise self._error(f'{where}: proxy-url: "{shown}" must start with http:// or https://')
        user = UserFields()
        if fields.user:
            user = self._find("user", fields.user, {each.name: each.user for each in self._config.users})
        return Access(
            server=cluster.server.rstrip("/"),
            authority=self._authority(where, cluster),
            login=self._login(f'user "{_shown(fields.user)}"', user, cluster),
            server_name=cluster.tls_server_name,
            proxy=cluster.proxy_url,
        )

    def _context(self, name: str) -> ContextFields:
        contexts = {each.name: each.context for each in self._config.contexts}
        if name or len(contexts) != 1:
            return self._find("context", name, contexts)
        return next(iter(contexts.values()))

    def _find(self, what: str, name: str, there: Mapping[str, T]) -> T:
        found = there.get(name)
        if found is None:
            listed = _shown(", ".join(sorted(there))) or "none"
            raise self._error(f'{what} "{_shown(name)}" does not exist; the file has: {listed}')
        return found

    def _authority(self, where: str, cluster: ClusterFields) -> Authority:
        given = self._material(
            where, "certificate-authority", cluster.certificate_authority_data, cluster.certificate_authority
        )
        if not cluster.insecure_skip_tls_verify:
            return SystemAuthorities() if given is None else given
        if given is not None:
            raise self._error(f"{where}: insecure-skip-tls-verify: must not be set beside a certificate-authority")
        return NoVerification()

    def _login(self, where: str, user: UserFields, cluster: ClusterFields) -> Login:
        if user.auth_provider is not None or user.username:
            field = "username" if user.username else "auth-provider"
            raise self._error(f"{where}: {field}: not supported; use a certificate, a token or exec")
        certificate = self._material(where, "client-certificate", user.client_certificate_data, user.client_certificate)
        key = self._material(where, "client-key", user.client_key_data, user.client_key)
        if (certificate is None) != (key is None):
            raise self._error(f"{where}: client-certificate and client-key must be given together")
        return Login(
            pair=None if certificate is None or key is None else KeyPair(certificate, key),
            token=user.token,
            token_file=self._path_of(user.token_file) if user.token_file else None,
            plugin=None if user.exec is None else self._plugin(where, user.exec, cluster),
        )

    def _plugin(self, where: str, fields: ExecFields, cluster: ClusterFields) -> ExecPlugin:
        if fields.api_version not in EXEC_VERSIONS:
            raise self._error(
                f'{where}: exec.apiVersion: "{_shown(fields.api_version)}" must be one of {EXEC_VERSIONS}'
            )
        if not fields.command:
            raise self._error(f"{where}: exec.command: must be given")
        if "\0" in "".join((fields.command, *fields.args, *(f"{each.name}{each.value}" for each in fields.env))):
            raise self._error(f"{where}: exec: {_ZERO}")
        # A command with a slash is relative to the file; a bare name is looked up on the PATH.
        command = str(self._path_of(fields.command)) if "/" in fields.command else fields.command
        return ExecPlugin(
            api_version=fields.api_version,
            command=command,
            args=fields.args,
            env={each.name: each.value for each in fields.env},
            install_hint=fields.install_hint,
            cluster=to_builtins(cluster) if fields.provide_cluster_info else None,
        )

    def _material(self, where: str, field: str, data: str, path: str) -> PemSource | None:
        if not data:
            return PemSource(path=self._path_of(path)) if path else None
        try:
            return PemSource(data=base64.b64decode(data, validate=True))
        except (binascii.Error, ValueError) as error:  # the latter for letters beyond ASCII
            raise self._error(f"{where}: {field}-data: not base64: {error}") from error

    def _path_of(self, path: str) -> Path:
        if "\0" in path:
            raise self._error(f'"{_shown(path)}": {_ZERO}')
        return (self._path.parent / path).absolute()

    def _error(self, text: str) -> KubeconfigError:
        return KubeconfigError(f"invalid kubeconfig: {self._path}: {text}")


def _is_address(text: str) -> bool:
    """Return whether it is the URL of a server, with a port that there is and nothing that cannot be written."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and port != 0 and text.isprintable()


def _shown(text: str) -> str:
    return one_line(shorten(text, LONGEST_WORD))
