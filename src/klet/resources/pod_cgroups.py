"""Pod cgroups below the QoS cgroups of the node (pod container manager): where they are, making and removing them."""

from klet.api.pod import Pod
from klet.host.cgroups.manager import CgroupManager
from klet.host.cgroups.names import CgroupName
from klet.host.cgroups.resources import MIN_SHARES, CgroupResources
from klet.host.errors import CgroupError, CgroupNameError
from klet.model.allocation import PodAllocation
from klet.model.pods import PodUID
from klet.model.qos import QosClass
from klet.resources.cgroup_values import PodCgroupRules, compute_pod_values
from klet.resources.names import pod_cgroup, pod_of, qos_cgroup


class PodCgroups:
    """Gives each pod a cgroup of its own that limits the pod as a whole; the runtime limits the containers in it."""

    def __init__(self, *, cgroups: CgroupManager, kubepods: CgroupName, rules: PodCgroupRules) -> None:
        self._cgroups = cgroups
        self._kubepods = kubepods
        self._rules = rules

    def parent_of(self, pod: Pod) -> str:
        """Return the CRI's `cgroup_parent` of a pod."""
        return self._cgroups.path(pod_cgroup(self._kubepods, pod))

    def exists(self, pod: Pod) -> bool:
        """Return whether the pod's cgroup is there, in every controller."""
        return self._cgroups.exists(pod_cgroup(self._kubepods, pod))

    async def ensure(self, pod: Pod, allocation: PodAllocation, *, lifts_quota: bool = False) -> bool:
        """Make the pod's cgroup with its limits; False for one that is there, which keeps the values it has."""
        name = pod_cgroup(self._kubepods, pod)
        if self._cgroups.exists(name):
            return False
        try:
            values = compute_pod_values(pod, allocation, self._rules, lifts_quota=lifts_quota)
            await self._cgroups.create(name, values)
        except CgroupError as error:
            raise CgroupError(f"failed to create container for {name} : {error}") from error
        return True

    async def write(self, pod: Pod, allocation: PodAllocation) -> None:
        """Write the values of a cgroup that is there; raises CgroupError."""
        values = compute_pod_values(pod, allocation, self._rules)
        await self._cgroups.update(pod_cgroup(self._kubepods, pod), values)

    async def destroy(self, pod: Pod) -> None:
        try:
            name = pod_cgroup(self._kubepods, pod)
        except CgroupNameError:
            return  # such a UID can never have had a cgroup, and the pod must be able to end
        await self._destroy(name)

    async def orphans(self, known: frozenset[PodUID]) -> tuple[PodUID, ...]:
        """Return pods that have a cgroup and nothing else."""
        return tuple(uid for uid, _ in await self._found() if uid not in known)

    async def destroy_uid(self, uid: PodUID) -> None:
        """Remove the cgroup of a pod of which only the UID is known."""
        for name in await self._named(uid):
            await self._destroy(name)

    async def reduce_cpu(self, uid: PodUID) -> None:
        """Leave a pod that is over but cannot be removed yet the least CPU there is."""
        for name in await self._named(uid):
            await self._cgroups.update(name, CgroupResources(cpu_shares=MIN_SHARES))

    async def _named(self, uid: PodUID) -> list[CgroupName]:
        return [name for found, name in await self._found() if found == uid]

    async def _found(self) -> list[tuple[PodUID, CgroupName]]:
        found: list[tuple[PodUID, CgroupName]] = []
        for qos in QosClass:
            place = qos_cgroup(self._kubepods, qos)
            if not self._cgroups.exists(place):
                continue
            children = await self._cgroups.children(place)
            found.extend((uid, child) for child in children if (uid := pod_of(self._kubepods, child)) is not None)
        return found

    async def _destroy(self, name: CgroupName) -> None:
        await self._cgroups.kill_all(name)
        await self._cgroups.destroy(name)


class NoPodCgroups:
    """For a node where the runtime chooses the cgroups of its containers (`cgroupsPerQOS: false`)."""

    def parent_of(self, pod: Pod) -> str:  # noqa: ARG002 - the same for all
        return ""

    def exists(self, pod: Pod) -> bool:  # noqa: ARG002 - none is missing
        return True

    async def ensure(self, pod: Pod, allocation: PodAllocation, *, lifts_quota: bool = False) -> bool:  # noqa: ARG002 - nothing is made
        return False

    async def write(self, pod: Pod, allocation: PodAllocation) -> None:
        """Do nothing: nothing was made."""

    async def destroy(self, pod: Pod) -> None:
        """Do nothing: nothing was made."""

    async def orphans(self, known: frozenset[PodUID]) -> tuple[PodUID, ...]:  # noqa: ARG002 - there are none
        return ()

    async def destroy_uid(self, uid: PodUID) -> None:
        """Do nothing: nothing was made."""

    async def reduce_cpu(self, uid: PodUID) -> None:
        """Do nothing: there is no cgroup to hold it."""
