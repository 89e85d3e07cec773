"""What pods have of volumes on this machine's disk, looked at and removed on threads of its own."""

from klet.aio.threads import Threads
from klet.model.pods import PodUID
from klet.volumes.disk import FoundVolume, find_left, find_pods, has_mounts
from klet.volumes.names import Layout
from klet.volumes.orphans import remove_orphan


class PodDirectories:
    """The pods' directories below the agent's root."""

    def __init__(self, *, layout: Layout, threads: Threads) -> None:
        self._layout = layout
        self._threads = threads

    async def pods(self) -> list[PodUID]:
        names = await self._threads.run(find_pods, self._layout.pods)
        return [name for name in names if isinstance(name, PodUID)]

    async def find(self, uid: PodUID) -> list[FoundVolume]:
        return await self._threads.run(find_left, self._layout.pod(uid))

    async def has_mounts(self, uid: PodUID) -> bool:
        return await self._threads.run(has_mounts, self._layout.volumes(uid))

    async def remove(self, uid: PodUID) -> None:
        await self._threads.run(remove_orphan, self._layout.pod(uid), uid)
