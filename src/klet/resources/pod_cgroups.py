"""Pod cgroups below the QoS cgroups of the node (pod container manager): where they are, making and removing them."""

from klet.api.pod import Pod
from klet.host.cgroups.manager import CgroupManager
from klet.host.cgroups.names import CgroupName
from klet.host.cgroups.resources import CgroupResources
from klet.model.pods import PodUID
from klet.model.qos import QosClass, compute_qos

KUBEPODS = "kubepods"
POD_PREFIX = "pod"
_PARENTS = {QosClass.GUARANTEED: (), QosClass.BURSTABLE: ("burstable",), QosClass.BEST_EFFORT: ("besteffort",)}


class PodCgroups:
    """Gives each pod a cgroup of its own; the runtime limits the containers in it."""

    def __init__(self, *, cgroups: CgroupManager, root: CgroupName, pids_limit: int | None) -> None:
        self._cgroups = cgroups
        self._kubepods = root.child(KUBEPODS)
        self._pids_limit = pids_limit

    def parent_of(self, pod: Pod) -> str:
        """The CRI's `cgroup_parent` of a pod."""
        return self._cgroups.path(self._name(pod))

    async def ensure(self, pod: Pod) -> None:
        name = self._name(pod)
        if not self._cgroups.exists(name):
            await self._cgroups.create(name, CgroupResources(pids_limit=self._pids_limit))

    async def destroy(self, pod: Pod) -> None:
        await self._destroy(self._name(pod))

    async def orphans(self, known: frozenset[PodUID]) -> tuple[PodUID, ...]:
        """Pods that have a cgroup and nothing else."""
        return tuple(uid for uid, _ in await self._found() if uid not in known)

    async def destroy_uid(self, uid: PodUID) -> None:
        """Remove the cgroup of a pod of which only the UID is known."""
        for found, name in await self._found():
            if found == uid:
                await self._destroy(name)

    async def _found(self) -> list[tuple[PodUID, CgroupName]]:
        found = []
        for parent in _PARENTS.values():
            place = self._kubepods.child(*parent)
            if not self._cgroups.exists(place):
                continue
            for child in await self._cgroups.children(place):
                prefix, is_pod, uid = child.last.partition(POD_PREFIX)
                if is_pod and not prefix and uid:
                    found.append((PodUID(uid), child))
        return found

    async def _destroy(self, name: CgroupName) -> None:
        if self._cgroups.exists(name):
            await self._cgroups.kill_all(name)
        await self._cgroups.destroy(name)

    def _name(self, pod: Pod) -> CgroupName:
        qos = QosClass(pod.status.qos_class) if pod.status.qos_class else compute_qos(pod)
        return self._kubepods.child(*_PARENTS[qos], f"{POD_PREFIX}{pod.metadata.uid}")
