"""Which certificate the agent serves with: configured files, a self-signed pair, or one requested from the cluster."""

import logging
import os
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from klet.aio.threads import Threads
from klet.certs.errors import PairDamaged, PairError
from klet.certs.messages import Pair
from klet.certs.pairs import CertificatePair, load_pair
from klet.certs.pem import certificate_blocks, key_block
from klet.certs.store import DIRECTORY_MODE
from klet.checkpoint import record_damage
from klet.host.errors import FileError
from klet.host.files import make_directories, read_text, write_atomic
from klet.model.causes import CauseRecorder

logger = logging.getLogger(__name__)

CERTIFICATE_MODE: Final = 0o644
KEY_MODE: Final = 0o600
TORN_RULE: Final = "the certificate or its key is empty or cut short"


class ServingSettings(Struct, frozen=True, kw_only=True):
    """`tlsCertFile`, `tlsPrivateKeyFile`, `serverTLSBootstrap` and `--cert-dir`."""

    certificate_file: str
    key_file: str
    is_requested: bool
    directory: Path


class GivenFiles(Struct, frozen=True):
    """The pair that the configuration names."""

    certificate_file: Path
    key_file: Path


class SelfSignedFiles(Struct, frozen=True):
    """The pair in the certificate directory, made if there is none."""

    certificate_file: Path
    key_file: Path


class Requested(Struct, frozen=True):
    """A pair of the store, requested from the cluster; the configured files serve until the first one is there."""

    configured: tuple[Path, Path] | None


class ServingConflict(Struct, frozen=True):
    """The settings contradict one another."""

    message: str


ServingFiles: TypeAlias = GivenFiles | SelfSignedFiles
ServingPlan: TypeAlias = ServingFiles | Requested | ServingConflict


class SelfSigner(Protocol):
    """The part of the maker that is needed here."""

    async def self_signed(self, host: str) -> Pair: ...


def plan_serving(settings: ServingSettings) -> ServingPlan:
    certificate, key = settings.certificate_file, settings.key_file
    if settings.is_requested:
        return Requested((Path(certificate), Path(key)) if certificate and key else None)
    if not certificate and not key:
        return SelfSignedFiles(settings.directory / "kubelet.crt", settings.directory / "kubelet.key")
    if not key:
        return ServingConflict(f"tlsPrivateKeyFile: required with tlsCertFile {certificate}; give both or neither")
    if not certificate:
        return ServingConflict(f"tlsCertFile: required with tlsPrivateKeyFile {key}; give both or neither")
    return GivenFiles(Path(certificate), Path(key))


class ServingPair:
    """Gets the serving pair ready at start."""

    def __init__(
        self,
        *,
        files: ServingFiles,
        host: str,
        signer: SelfSigner,
        threads: Threads,
        recorder: CauseRecorder | None = None,
    ) -> None:
        self._files = files
        self._host = host
        self._signer = signer
        self._threads = threads
        self._recorder = recorder

    async def is_there(self) -> bool:
        """Return whether nothing has to be made. Raises PairError."""
        if not isinstance(self._files, SelfSignedFiles):
            return True
        for path, aside in await self._threads.run(_set_torn_aside, self._files):
            if self._recorder is not None:
                record_damage(self._recorder, path, rule=TORN_RULE, set_aside=aside)
        return await self._threads.run(_has_pair, self._files)

    async def prepare(self) -> CertificatePair:
        """Return the pair to serve with. Raises PairError, and what the maker raises if a pair has to be made."""
        files = self._files
        if isinstance(files, SelfSignedFiles) and not await self.is_there():
            pair = await self._signer.self_signed(self._host)
            await self._threads.run(_write_pair, files, pair)
            logger.info("Made a self-signed serving certificate", extra={"file": str(files.certificate_file)})
        return await self._threads.run(_load, files)


def _load(files: ServingFiles) -> CertificatePair:
    try:
        return load_pair(files.certificate_file, files.key_file)
    except PairDamaged as error:
        if isinstance(files, GivenFiles):
            advice = "correct tlsCertFile and tlsPrivateKeyFile"
        else:
            advice = f"remove {files.certificate_file} and {files.key_file} to have new ones made"
        raise PairDamaged(error.path, f"{error.rule}; {advice}") from error


def _set_torn_aside(files: SelfSignedFiles) -> list[tuple[Path, Path]]:
    """Set a pair aside of which a file is empty, cut short or full of zeros: a loss of power leaves such files.

    The Go kubelet, whose pair this may be, does not sync it. A pair that is whole and does not fit stays where it is.
    """
    certificate, key = files.certificate_file, files.key_file
    try:
        present = [path for path in (certificate, key) if path.exists()]
        is_whole = (certificate not in present or certificate_blocks(read_text(certificate))) and (
            key not in present or key_block(read_text(key))
        )
        if is_whole:
            return []
        asides = [(path, path.with_name(f"{path.name}.corrupt")) for path in present]
        for path, aside in asides:
            path.replace(aside)
    except FileError as error:
        raise PairError(str(error)) from error
    except OSError as error:
        raise PairError(f"cannot set a damaged pair in {files.key_file.parent} aside: {error.strerror}") from error
    logger.error(
        "A serving certificate was damaged and set aside",
        extra={"file": str(files.certificate_file), "rule": TORN_RULE},
    )
    return asides


def _has_pair(files: SelfSignedFiles) -> bool:
    """Return whether both exist. One alone is an error: it may be half of a pair that was put there."""
    staged = _staged(files.certificate_file)
    has_key = os.access(files.key_file, os.R_OK)
    if has_key and staged.exists() and not files.certificate_file.exists():
        _move(staged, files.certificate_file)  # a write that was cut short between its two last steps
    has_certificate = os.access(files.certificate_file, os.R_OK)
    if has_key != has_certificate:
        missing = files.certificate_file if has_key else files.key_file
        raise PairError(
            f"error reading {missing}, certificate and key must be supplied as a pair; "
            f"put it there, or remove the other one to have new ones made"
        )
    return has_key


def _write_pair(files: SelfSignedFiles, pair: Pair) -> None:
    """Write the key, then the certificate. A crash in between leaves the staged certificate for the next start."""
    staged = _staged(files.certificate_file)
    try:
        make_directories(files.certificate_file.parent, mode=DIRECTORY_MODE)
        write_atomic(staged, pair.certificate.encode(), mode=CERTIFICATE_MODE)
        write_atomic(files.key_file, pair.key.encode(), mode=KEY_MODE)
    except FileError as error:
        raise PairError(str(error)) from error
    except OSError as error:
        raise PairError(f"cannot make {files.certificate_file.parent}: {error.strerror}") from error
    _move(staged, files.certificate_file)


def _move(staged: Path, target: Path) -> None:
    try:
        staged.replace(target)
    except OSError as error:
        raise PairError(f"cannot write {target}: {error.strerror}") from error


def _staged(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")
