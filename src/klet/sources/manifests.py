"""Manifest files on disk: listing a directory, reading a file, and not decoding again what has not changed.

Everything here blocks and runs on a thread, one call at a time.
"""

import hashlib
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from klet.api.pod import Pod
from klet.api.static_pods import StaticOrigin
from klet.api.validation.options import STATIC_POD, PodValidationOptions
from klet.sources.decode import MAX_MANIFEST, Origin, decode_pod
from klet.sources.errors import ManifestError, SourceError

logger = logging.getLogger(__name__)


class ManifestContent(Struct, frozen=True, kw_only=True):
    """What was read from a file: a pod, or what is wrong with it."""

    pod: Pod | None = None
    error: str | None = None
    digest: str = ""
    """Of the content, to distinguish one bad content from the next."""


class Listing(Struct, frozen=True, kw_only=True):
    """All manifests there are, by file name."""

    readings: Mapping[str, ManifestContent]
    is_settled: bool = True
    """False when the one file could not be decoded: the known pod then stays as it is."""


Signature: TypeAlias = tuple[int, int, int, int, int]


class ManifestReader:
    """Reads the manifests of one node. A file that looks untouched is not read again by a listing."""

    def __init__(
        self, *, node_name: str, prevent_api_references: bool = True, options: PodValidationOptions = STATIC_POD
    ) -> None:
        self._node_name = node_name
        self._options = options
        self._prevent_api_references = prevent_api_references
        self._cache: dict[Path, tuple[Signature, ManifestContent]] = {}
        self._is_missing = False

    def list(self, path: Path) -> Listing:
        """Return the manifests of a directory, or the one file; nothing when the path does not exist.

        Raises SourceError when the path cannot be read.
        """
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            self._note_missing(path)
            return Listing(readings={})
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}") from error
        self._is_missing = False
        if stat.S_ISDIR(mode):
            return Listing(readings=self._list_directory(path))
        if not stat.S_ISREG(mode):
            raise SourceError(f"{path}: path is not a directory or file")
        reading = self.read(path, trust_cache=True)
        if reading is None:
            return Listing(readings={})
        return Listing(readings={path.name: reading}, is_settled=reading.error is None)

    def read(self, path: Path, *, trust_cache: bool = False) -> ManifestContent | None:
        """Read one file; None when it is gone, or is no file."""
        try:
            # Not blocking, because opening a named pipe would otherwise wait for its writer.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            self._cache.pop(path, None)
            return None
        except OSError as error:
            return ManifestContent(error=f"{path}: {error.strerror}")
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                logger.debug("Not a manifest", extra={"path": str(path)})
                return None
            signature = _signature(status)
            cached = self._cache.get(path)
            if trust_cache and cached is not None and cached[0] == signature:
                return cached[1]
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(MAX_MANIFEST + 1)
        except OSError as error:
            return ManifestContent(error=f"{path}: {error.strerror}")
        finally:
            os.close(descriptor)
        reading = self._decode(path, data)
        self._cache[path] = (signature, reading)
        return reading

    def _list_directory(self, path: Path) -> Mapping[str, ManifestContent]:
        try:
            names = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}") from error
        found: dict[str, ManifestContent] = {}
        for name in names:
            reading = self.read(path / name, trust_cache=True)
            if reading is not None:
                found[name] = reading
        self._cache = {file: cached for file, cached in self._cache.items() if file.name in found}
        return found

    def _decode(self, path: Path, data: bytes) -> ManifestContent:
        digest = hashlib.sha256(data).hexdigest()
        origin = Origin(
            kind=StaticOrigin.FILE,
            location=str(path),
            node_name=self._node_name,
            prevent_api_references=self._prevent_api_references,
            options=self._options,
        )
        try:
            return ManifestContent(pod=decode_pod(data, origin), digest=digest)
        except ManifestError as error:
            return ManifestContent(error=str(error), digest=digest)

    def _note_missing(self, path: Path) -> None:
        if not self._is_missing:
            self._is_missing = True
            logger.info("Manifest path does not exist, ignoring", extra={"path": str(path)})


def is_link(path: Path) -> bool:
    """Return whether a file has its content from the moment it appears: a symlink, or one more name of another file."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode) or status.st_nlink > 1


def _signature(status: os.stat_result) -> Signature:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
