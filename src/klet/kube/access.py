"""How to reach an API server: its address, how to know it, and what to show it. Values only."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field

from klet.model.hidden_fields import HidesFields


class PemSource(HidesFields, frozen=True):
    """PEM text, inline or in a file that may change under us."""

    HIDDEN = frozenset({"data"})

    data: bytes = b""
    path: Path | None = None

    def read(self) -> bytes:
        """Return the text as it is now; raises OSError."""
        return self.data if self.path is None else self.path.read_bytes()


class KeyPair(Struct, frozen=True):
    """A client certificate and its key; one file may hold both."""

    certificate: PemSource
    key: PemSource
    successor: Path | None = None
    """A file with both that counts from the moment it is there."""

    def read(self) -> tuple[bytes, bytes]:
        """Read both as they are now; raises OSError. One file is read once: it may be replaced between two reads."""
        if self.successor is not None:
            with suppress(FileNotFoundError, NotADirectoryError):
                both = self.successor.read_bytes()
                return both, both
        certificate = self.certificate.read()
        is_one_file = self.certificate.path is not None and self.certificate.path == self.key.path
        return certificate, certificate if is_one_file else self.key.read()

    def stamp(self) -> tuple[object, ...]:
        """Return what changes whenever `read` may return something else, for less than a read costs; raises OSError."""
        if self.successor is not None:
            with suppress(FileNotFoundError, NotADirectoryError):
                return (_stamp(self.successor),)
        return tuple(None if each.path is None else _stamp(each.path) for each in (self.certificate, self.key))


def _stamp(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class ExecPlugin(HidesFields, frozen=True):
    """A program that prints an ExecCredential."""

    HIDDEN = frozenset({"env"})

    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    install_hint: str = ""
    cluster: Mapping[str, object] | None = None
    """What the plugin gets of the cluster, if it asks for that (provideClusterInfo)."""


class Login(HidesFields, frozen=True):
    """What the agent shows. Several may be set: a certificate is shown with a token."""

    HIDDEN = frozenset({"token"})

    pair: KeyPair | None = None
    token: str = ""
    token_file: Path | None = None
    plugin: ExecPlugin | None = None


class SystemAuthorities(Struct, frozen=True):
    """Trust what the machine trusts."""


class NoVerification(Struct, frozen=True):
    """Trust anybody."""


Authority: TypeAlias = PemSource | SystemAuthorities | NoVerification


class Access(Struct, frozen=True, kw_only=True):
    """One server and one set of credentials."""

    server: str
    authority: Authority = field(default_factory=SystemAuthorities)
    login: Login = field(default_factory=Login)
    server_name: str = ""
    """The name to expect in the server's certificate, if it is not that of the address."""
    proxy: str = ""
