"""The board of CPUs: which containers have some alone, and which are shared. Written by the CPU manager only."""

from klet.aio.broadcast import Broadcast, Subscription
from klet.model.allocation import NO_PINS, CpuUse, Pins
from klet.model.pods import PodUID
from klet.resources.cpu.policy import StaticPolicy
from klet.resources.cpu.state import CpuState
from klet.resources.cpu.topology import CpuSet


class CpuBoard:
    """Who runs on which CPUs. Without a policy all run on all CPUs."""

    def __init__(self, *, policy: StaticPolicy | None, state: CpuState, lifts_quota: bool) -> None:
        self._policy = policy
        self._state = state
        self._lifts_quota = lifts_quota
        """The gate DisableCPUQuotaWithExclusiveCPUs."""
        self._changes = Broadcast[CpuState]()

    @property
    def state(self) -> CpuState:
        return self._state

    def put(self, state: CpuState) -> None:
        """Publish what is on disk now."""
        is_new = state.shared != self._state.shared or state.exclusive != self._state.exclusive
        self._state = state
        if is_new:
            self._changes.send(state)

    def changes(self) -> Subscription[CpuState]:
        return self._changes.subscribe()

    def pins_of(self, uid: PodUID, container: str) -> Pins:
        """Return the CPUs that a container is created with: its own, or those that all others share."""
        if self._policy is None:
            return NO_PINS
        own = self._state.of(uid, container)
        return Pins(cpus=self._state.shared if own is None else own, lifts_quota=bool(own) and self._lifts_quota)

    def lifts_pod_quota(self, uid: PodUID) -> bool:
        """Return whether the CPU limit of a pod is not enforced, since one of its containers has CPUs alone."""
        return self._lifts_quota and any(self._state.exclusive.get(uid, {}).values())

    def cpu_use(self) -> CpuUse:
        if self._policy is None:
            return CpuUse(shared=frozenset())
        return CpuUse(shared=self._state.shared, reserved=self._policy.reserved, exclusive=self._state.exclusive)

    @property
    def free(self) -> CpuSet:
        """The CPUs that containers could still have alone."""
        return self._state.shared - self._policy.reserved if self._policy is not None else frozenset()
