"""Where requested certificates lie, as upstream's certificate store has them. Everything here blocks.

Each pair is one dated file, certificates first and then the key; `<prefix>-current.pem` is a symlink to the newest.
"""

import logging
import os
from pathlib import Path
from typing import Final

from klet.aio.clock import Clock
from klet.certs.errors import PairDamaged, PairError, PairMissing
from klet.certs.pairs import CertificatePair, load_pair
from klet.certs.pem import certificate_blocks
from klet.host.errors import FileError
from klet.host.files import make_directories, remove_file, sync_directory, write_atomic

logger = logging.getLogger(__name__)

CLIENT_PREFIX: Final = "kubelet-client"
SERVER_PREFIX: Final = "kubelet-server"

DIRECTORY_MODE: Final = 0o755
FILE_MODE: Final = 0o600


class PairStore:
    """The pairs of one prefix. One writer."""

    def __init__(self, *, prefix: str, directory: Path, configured: tuple[Path, Path] | None, clock: Clock) -> None:
        self._prefix = prefix
        self._directory = directory
        self._configured = configured
        self._clock = clock

    @property
    def current_path(self) -> Path:
        """What a kubeconfig names as certificate and as key."""
        return self._directory / f"{self._prefix}-current.pem"

    @property
    def _updated_path(self) -> Path:
        return self._directory / f"{self._prefix}-updated.pem"

    def load(self) -> CertificatePair:
        """Return the pair in force: the current one, else the configured files, else `<prefix>.crt` and `<prefix>.key`.

        The first of them that exists counts, good or bad. Raises PairMissing, PairDamaged or PairError.
        """
        try:
            self._finish_update()
            places = list(self._places())
            found = next((place for place in places if all(path.exists() for path in place)), None)
            if found is None:
                raise PairMissing(f"no certificate and key at {' or '.join(_show(place) for place in places)}")
        except OSError as error:
            raise PairError(f"cannot look for certificates in {self._directory}: {error.strerror}") from error
        return load_pair(*found) if found[0] != self.current_path else self._load_current()

    def update(self, certificate: str, key: str) -> CertificatePair:
        """Put a new pair into force. Older files stay. What is no pair changes nothing and raises PairDamaged."""
        now = self._clock.now().astimezone()
        target = self._directory.absolute() / f"{self._prefix}-{now:%Y-%m-%d-%H-%M-%S}.pem"
        content = "".join(certificate_blocks(certificate)) + key
        staged = target.with_name(f".{target.name}.new")
        try:
            make_directories(self._directory, mode=DIRECTORY_MODE)
            write_atomic(staged, content.encode(), mode=FILE_MODE)
            try:
                load_pair(staged, staged)
                staged.replace(target)
                # On the disk before the link: a link to nothing would leave the node without a certificate.
                sync_directory(self._directory)
            except PairDamaged as error:
                raise PairDamaged(target, f"not written: {error.rule}") from error
            finally:
                remove_file(staged)
            self._point_to(target)
        except FileError as error:
            raise PairError(str(error)) from error
        except OSError as error:
            raise PairError(f"cannot store a certificate at {target}: {error.strerror}") from error
        return load_pair(target, target)

    def _load_current(self) -> CertificatePair:
        # Through the link: the dated file never changes, so what is checked here is what is used later.
        dated = self.current_path.resolve()
        try:
            return load_pair(dated, dated)
        except PairDamaged as error:
            advice = f"remove {self.current_path} to have a new one requested"
            raise PairDamaged(error.path, f"{error.rule}; {advice}") from error

    def _places(self) -> tuple[tuple[Path, Path], ...]:
        plain = (self._directory / f"{self._prefix}.crt", self._directory / f"{self._prefix}.key")
        configured = () if self._configured is None else (self._configured,)
        return ((self.current_path, self.current_path), *configured, plain)

    def _finish_update(self) -> None:
        """Complete an update that was cut short between its two last steps, as upstream does them."""
        if self.current_path.exists() or not os.path.lexists(self._updated_path):
            return
        _check_symlink(self._updated_path)
        self._updated_path.replace(self.current_path)
        logger.info("An interrupted certificate update was finished", extra={"file": str(self.current_path)})

    def _point_to(self, target: Path) -> None:
        _check_symlink(self.current_path)
        _check_symlink(self._updated_path)
        self._updated_path.unlink(missing_ok=True)
        self._updated_path.symlink_to(target)
        # Upstream removes the current link first. Replacing it leaves no moment without one.
        self._updated_path.replace(self.current_path)
        sync_directory(self._directory)


def _check_symlink(path: Path) -> None:
    if os.path.lexists(path) and not path.is_symlink():
        raise PairError(f"expected {path} to be a symlink but it is a file; move it away")


def _show(place: tuple[Path, Path]) -> str:
    return " and ".join(str(path) for path in dict.fromkeys(place))
