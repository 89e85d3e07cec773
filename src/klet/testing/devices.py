"""Devices of volumes that exist only by name: a mount table, binds, links and locks in dictionaries."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from klet.errors import KletError
from klet.host.mountinfo import MountEntry
from klet.model.pods import PodUID
from klet.volumes.device_host import BlockMapping


class MemoryDevices:
    """What the machine has. It outlives the agent of a test."""

    def __init__(self, *, effect: Callable[[], Awaitable[None]] | None = None) -> None:
        self._effect = effect
        self.table: list[MountEntry] = []
        self.elsewhere: dict[str, list[str]] = {}
        """Other places at which what is mounted at a path is mounted."""
        self.busy: set[str] = set()
        """Devices that something has open exclusively."""
        self.binds: dict[tuple[str, PodUID], str] = {}
        """Devices by global map path and pod."""
        self.links: dict[Path, str] = {}
        self.locks: set[tuple[str, PodUID]] = set()
        self.maps: set[str] = set()
        """Global map paths that exist."""
        self.errors: dict[str, str] = {}
        """What fails, by the name of the method, and why."""

    async def mounts(self) -> Sequence[MountEntry]:
        self._check("mounts")
        return tuple(self.table)

    async def references(self, path: str) -> Sequence[str]:
        self._check("references")
        return tuple(self.elsewhere.get(path, ()))

    async def is_in_use(self, device: str) -> bool:
        self._check("is_in_use")
        return device in self.busy

    async def resolve(self, device: str) -> str:
        self._check("resolve")
        return device

    async def announce(self, mapping: BlockMapping) -> None:
        self._check("announce")
        self.links.setdefault(mapping.link, f"{mapping.map_path}/{mapping.uid}")
        await self._done()

    async def map_device(self, mapping: BlockMapping, device: str) -> None:
        self._check("map_device")
        self.maps.add(mapping.map_path)
        await self._done()
        self.binds[mapping.map_path, mapping.uid] = device
        await self._done()
        self.links[mapping.link] = device
        await self._done()
        self.locks.add((mapping.map_path, mapping.uid))
        await self._done()

    async def unmap_device(self, mapping: BlockMapping) -> None:
        self._check("unmap_device")
        self.locks.discard((mapping.map_path, mapping.uid))
        await self._done()
        self.binds.pop((mapping.map_path, mapping.uid), None)
        await self._done()

    async def unlink(self, mapping: BlockMapping) -> None:
        self._check("unlink")
        self.links.pop(mapping.link, None)
        await self._done()

    async def mapped(self, map_path: str) -> Sequence[str]:
        self._check("mapped")
        return sorted(uid for path, uid in self.binds if path == map_path)

    async def remove_map(self, map_path: str) -> None:
        self._check("remove_map")
        self.maps.discard(map_path)
        await self._done()

    def is_empty(self) -> bool:
        """Return whether nothing is left of any device."""
        return not (self.binds or self.links or self.locks or self.maps)

    async def _done(self) -> None:
        if self._effect is not None:
            await self._effect()

    def _check(self, method: str) -> None:
        if method in self.errors:
            raise KletError(self.errors[method])
