"""nfs: a directory of a server, mounted for each pod of its own by mount(8)."""

import ipaddress
import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from klet.aio.threads import Threads
from klet.api.volume import NFSVolumeSource, Volume
from klet.errors import KletError
from klet.host.mountinfo import MountEntry, find_mount
from klet.model.pods import PodUID
from klet.model.volumes import UsageSource
from klet.volumes.device_mounts import Unmounter
from klet.volumes.errors import VolumeSetupError
from klet.volumes.names import Layout, escape
from klet.volumes.plugins.base import LeftVolume, MountRequest, VolumeAttributes, VolumePlugin
from klet.volumes.spec import VolumeSpec
from klet.volumes.volume_directories import make_volume, remove_empty_volume, resolved_volume

logger = logging.getLogger(__name__)

_MODE: Final = 0o750
_FS_TYPE: Final = "nfs"


class NetworkMounter(Protocol):
    """Mounts network filesystems, and knows what is mounted without asking any server."""

    async def mount(self, source: str, target: Path, *, fs_type: str, options: Sequence[str]) -> None: ...

    async def list(self) -> tuple[MountEntry, ...]: ...


def nfs_source(server: str, path: str) -> str:
    """Return what mount(8) calls an export: an IPv6 address is in brackets."""
    try:
        is_ipv6 = isinstance(ipaddress.ip_address(server), ipaddress.IPv6Address)
    except ValueError:
        is_ipv6 = False
    return f"[{server}]:{path}" if is_ipv6 else f"{server}:{path}"


class NfsPlugin(VolumePlugin):
    """Mounts an export in the directory of the pod. Its owner is the server's business: there is no fsGroup."""

    name = "kubernetes.io/nfs"
    supports_mount_options = True
    usage_source = UsageSource.STATFS

    def __init__(self, *, layout: Layout, mounter: NetworkMounter, unmounter: Unmounter, threads: Threads) -> None:
        self._layout = layout
        self._mounter = mounter
        self._unmounter = unmounter
        self._threads = threads

    def supports(self, spec: VolumeSpec) -> bool:
        return _source(spec) is not None

    def attributes(self, spec: VolumeSpec) -> VolumeAttributes:
        return VolumeAttributes(read_only=_is_read_only(spec))

    def path(self, uid: PodUID, spec: VolumeSpec) -> str:
        return str(self._layout.volume(uid, self.name, spec.name))

    async def set_up(self, request: MountRequest) -> datetime | None:
        spec = request.spec
        source = _source(spec)
        assert source is not None  # by `supports`
        target = self._layout.volume(request.uid, self.name, spec.name)
        found = await self._resolve(target)
        before = await self._mounter.list()
        if found is not None and find_mount(before, found):
            return None
        await self._threads.run(make_volume, target, mode=_MODE)
        export = nfs_source(source.server, source.path)
        options = sorted({*spec.mount_options, *(["ro"] if _is_read_only(spec) else [])})
        try:
            await self._mounter.mount(export, target, fs_type=_FS_TYPE, options=options)
            await self._check_place(target, export, before)
        except KletError:
            await self._take_down(target)
            raise
        return None

    async def tear_down(self, uid: PodUID, name: str) -> None:
        await self._take_down(self._layout.volume(uid, self.name, name))

    async def reconstruct(self, left: LeftVolume) -> VolumeSpec:
        return VolumeSpec(Volume(name=left.name, nfs=NFSVolumeSource(server="", path=left.name)))

    async def _take_down(self, target: Path) -> None:
        """Unmount it, and remove the empty directory. Nothing looks at the mount itself: its server may be gone."""
        await self._unmounter.unmount_all(target)
        await self._threads.run(remove_empty_volume, target)

    async def _resolve(self, target: Path) -> str | None:
        return await self._threads.run(resolved_volume, target)

    async def _check_place(self, target: Path, export: str, before: Iterable[MountEntry]) -> None:
        """Check that the mount is where it should be: mount(8) follows a link that was put there meanwhile."""
        after = await self._mounter.list()
        found = await self._resolve(target)
        if found is not None and find_mount(after, found):
            return
        known, own = {entry.mount_id for entry in before}, f"/volumes/{escape(self.name)}/"
        for entry in after:
            if entry.mount_id not in known and entry.source == export and own not in entry.mount_point:
                await self._unmounter.unmount(Path(entry.mount_point))
        raise VolumeSetupError(f"{export} was not mounted at {target}: something else is in its place")


def _source(spec: VolumeSpec) -> NFSVolumeSource | None:
    return spec.volume.nfs if spec.persistent is None else spec.persistent.spec.nfs


def _is_read_only(spec: VolumeSpec) -> bool:
    if spec.persistent is not None:
        return spec.read_only
    return spec.volume.nfs is not None and spec.volume.nfs.read_only
