"""Ensures that a pod runs in its own cgroup, and that the QoS cgroups have the shares of their pods.

Containers outside of the cgroup that their pod should have escape its limits, so such a pod is stopped and started
again.
"""

import logging
from collections.abc import Iterable
from typing import Protocol

from klet.allocation.book import AllocationBook
from klet.api.container import Container
from klet.api.pod import Pod, PodStatus
from klet.errors import KletError
from klet.host.errors import CgroupError
from klet.model.allocation import PodAllocation
from klet.model.causes import CauseId, CauseRecorder
from klet.model.pods import PodUID, uid_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.roles import CpuQuotas
from klet.model.runtime import PodRuntimeStatus
from klet.runtime.kill.killer import PodKiller
from klet.runtime.restart import NEVER, effective_policy
from klet.sync.ledger import WorkerLedger
from klet.sync.preparation import PreparationStep, StepIncomplete, Stopped, SyncedPod
from klet.sync.worker_state import Stage

logger = logging.getLogger(__name__)

DECIDER = "sync.cgroup_step"
_ACTIVE = frozenset({Stage.SYNCING, Stage.TERMINATING})


class PodCgroupFailed(KletError):
    """The cgroup of a pod could not be made, so the pod cannot start."""


class PodCgroupKeeper(Protocol):
    """Creates and removes the cgroup of a pod (pod container manager)."""

    def exists(self, pod: Pod) -> bool: ...

    async def ensure(self, pod: Pod, allocation: PodAllocation, *, lifts_quota: bool = False) -> bool:
        """Make the cgroup with the values of the allocation; return whether it was made now.

        With `lifts_quota` its CPU limit is not enforced.
        """
        ...

    async def write(self, pod: Pod, allocation: PodAllocation) -> None:
        """Write the values of one that is there; raises CgroupError."""
        ...

    async def destroy(self, pod: Pod) -> None: ...


class QosKeeper(Protocol):
    """Updates the QoS cgroups (QoS container manager)."""

    async def update(self, pods: Iterable[tuple[Pod, PodAllocation]]) -> None: ...


class CgroupStep(PreparationStep):
    """Gives a pod its cgroup. Volumes in memory are charged to it, so it is prepared before them and removed after."""

    name = "cgroup"

    def __init__(
        self,
        *,
        cgroups: PodCgroupKeeper,
        qos: QosKeeper,
        allocations: AllocationBook,
        quotas: CpuQuotas,
        ledger: WorkerLedger,
        killer: PodKiller,
        recorder: CauseRecorder,
    ) -> None:
        self._cgroups = cgroups
        self._qos = qos
        self._allocations = allocations
        self._quotas = quotas
        self._ledger = ledger
        self._killer = killer
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)

    async def keep(self, synced: SyncedPod) -> StepIncomplete | Stopped | None:
        pod, cause = synced.pod, synced.cause
        if self._cgroups.exists(pod):
            if not (synced.status.sandboxes or synced.status.containers):
                await self._complete(pod)
            return None
        killed = is_running(synced.reported) and await self._kill(pod, synced.status, cause)
        if not (killed and runs_once(pod)):
            await self._make(pod, cause)
        return Stopped() if killed else None

    async def note_stop(self, uid: PodUID | None) -> None:
        """Update the QoS cgroups without the pod that has stopped."""
        await self.balance(without=uid)

    async def balance(self, *, without: PodUID | None = None) -> None:
        """Update the QoS cgroups for the pods that are there now. A failure does not stop a pod from starting."""
        states = self._ledger.all().items()
        pods = [
            (state.pod, self._allocations.of(state.pod))
            for uid, state in states
            if state.stage in _ACTIVE and not state.is_runtime_only and uid != without
        ]
        try:
            await self._qos.update(pods)
        except CgroupError as error:
            logger.warning("QoS cgroups not updated", extra={"error": str(error)})

    async def release(self, pod: Pod) -> None:
        await self._cgroups.destroy(pod)
        await self.balance()

    async def _kill(self, pod: Pod, status: PodRuntimeStatus, cause: CauseId | None) -> bool:
        parent = self._decisions.for_pod(pod).record(
            Reason.POD_CGROUP_MISSING,
            "containers of the pod run, but the pod's cgroup is not there: nothing limits them",
            next_step="stop the pod and start it in a cgroup of its own",
            parent=cause,
        )
        try:
            await self._killer.kill_pod(pod, status, parent=parent)
        except KletError as error:
            logger.warning("Pod outside of its cgroup not killed", extra={"uid": uid_of(pod), "error": str(error)})
            return False
        await self.balance()
        return True

    async def _complete(self, pod: Pod) -> None:
        """Write the values of a cgroup in which nothing was started yet: its agent may have ended before it did."""
        allocation = self._allocations.of(pod)
        try:
            await self._cgroups.write(pod, allocation)
        except CgroupError as error:
            logger.warning("Values of a new cgroup not written", extra={"uid": uid_of(pod), "error": str(error)})
        else:
            self._allocations.record_cgroup(uid_of(pod), allocation)

    async def _make(self, pod: Pod, cause: CauseId | None) -> None:
        await self.balance()
        allocation = self._allocations.of(pod)
        try:
            lifts_quota = self._quotas.lifts_pod_quota(uid_of(pod))
            is_made = await self._cgroups.ensure(pod, allocation, lifts_quota=lifts_quota)
        except CgroupError as error:
            text = f"unable to ensure pod container exists: {error}"
            self._decisions.for_pod(pod).record(
                Reason.FAILED_CREATE_POD_CONTAINER, text, next_step="try again after a back-off", parent=cause
            )
            uid = uid_of(pod)
            message = f"failed to ensure that the pod: {uid} cgroups exist and are correctly applied: {error}"
            raise PodCgroupFailed(message) from error
        if is_made:
            self._allocations.record_cgroup(uid_of(pod), allocation)


def is_running(status: PodStatus) -> bool:
    """Return whether a regular container runs; upstream checks no others here."""
    return any(each.state.running is not None for each in status.container_statuses)


def runs_once(pod: Pod) -> bool:
    """Return whether no container of the pod may ever be started again."""
    return pod.spec.restart_policy == NEVER and not any(_may_restart(each, pod) for each in pod.spec.containers)


def _may_restart(container: Container, pod: Pod) -> bool:
    by_rule = any(rule.action == "Restart" for rule in container.restart_policy_rules)
    return effective_policy(container, pod) != NEVER or (container.restart_policy is not None and by_rule)
