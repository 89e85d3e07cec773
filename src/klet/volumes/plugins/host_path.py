"""hostPath, of a pod or of a PersistentVolume: a file or directory of the machine, as it is."""

import os
import stat
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from klet.aio.threads import Threads
from klet.api.validation.formats import has_backsteps
from klet.api.volume import HostPathVolumeSource
from klet.model.pods import PodUID
from klet.volumes.errors import VolumeSetupError, doing
from klet.volumes.plugins.base import MountRequest, VolumeAttributes, VolumePlugin
from klet.volumes.spec import VolumeSpec

_CHECKS: Final[Mapping[str, tuple[Callable[[int], bool], str]]] = {
    "Directory": (stat.S_ISDIR, "directory"),
    "File": (stat.S_ISREG, "file"),
    "Socket": (stat.S_ISSOCK, "socket file"),
    "CharDevice": (stat.S_ISCHR, "character device"),
    "BlockDevice": (stat.S_ISBLK, "block device"),
}
_OR_CREATE: Final = "OrCreate"


class HostPathPlugin(VolumePlugin):
    """Mounts nothing: checks the path, or makes it if the type asks for that."""

    name = "kubernetes.io/host-path"

    def __init__(self, *, threads: Threads) -> None:
        self._threads = threads

    def supports(self, spec: VolumeSpec) -> bool:
        return _source(spec) is not None

    def attributes(self, spec: VolumeSpec) -> VolumeAttributes:
        return VolumeAttributes(read_only=spec.read_only)

    def path(self, uid: PodUID, spec: VolumeSpec) -> str:  # noqa: ARG002 - the same for all pods
        source = _source(spec)
        assert source is not None  # by `supports`
        return source.path

    async def set_up(self, request: MountRequest) -> datetime | None:
        source = _source(request.spec)
        assert source is not None  # by `supports`
        if has_backsteps(source.path):
            raise VolumeSetupError(f"invalid HostPath `{source.path}`: must not contain '..'")
        if source.type:
            await self._threads.run(check_host_path, Path(source.path), source.type)
        return None

    async def tear_down(self, uid: PodUID, name: str) -> None:
        """Do nothing: the path belongs to the machine."""


def _source(spec: VolumeSpec) -> HostPathVolumeSource | None:
    return spec.volume.host_path if spec.persistent is None else spec.persistent.spec.host_path


def check_host_path(path: Path, kind: str) -> None:
    """Raise if a path is not what it should be; make it if it is missing and may be made. It blocks."""
    plain = kind.removesuffix(_OR_CREATE)
    if plain not in _CHECKS or (kind != plain and plain not in {"Directory", "File"}):
        raise VolumeSetupError(f"{kind} is an invalid volume type")
    if "\0" in str(path):
        raise VolumeSetupError("a hostPath must not contain a NUL")
    mode = _mode(path)
    if mode is None and kind.endswith(_OR_CREATE):
        if _make(path, plain):
            return
        mode = _mode(path)
    holds, shown = _CHECKS[plain]
    if not holds(mode or 0):
        raise VolumeSetupError(f"hostPath type check failed: {path} is not a {shown}")


def _mode(path: Path) -> int | None:
    """Return the mode of what is there; None if nothing is. Whatever the reason is, upstream takes it for missing."""
    try:
        return path.stat().st_mode
    except OSError:
        return None


def _make(path: Path, kind: str) -> bool:
    """Make it; False if something has the name by now. A link there is not followed: it could lead anywhere."""
    with doing("make", path):
        if kind == "Directory":
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
            return True
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        except FileExistsError:
            return False
    return True
