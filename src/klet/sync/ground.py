"""What the node gives a pod before its sandbox, and takes back afterwards: a network, its cgroup, its directories."""

from typing import Protocol

from klet.api.pod import Pod, PodStatus
from klet.errors import KletError
from klet.model.causes import CauseId, CauseRecorder, Finding
from klet.model.pods import PodUID, subject_of, uid_of
from klet.model.runtime import PodRuntimeStatus
from klet.sync.cgroup_step import CgroupStep
from klet.sync.requeue import NETWORK_NOT_READY


class PodDirectories(Protocol):
    """Makes the directories a pod needs before its sandbox, and gives back what it held when it is over."""

    async def prepare_pod(self, pod: Pod) -> None: ...

    async def release_pod(self, uid: PodUID) -> None: ...


class Network(Protocol):
    """Says whether pods can be given a network."""

    def network_error(self) -> str | None:
        """Why not, or None."""
        ...


class PodGround:
    """Prepares what a pod stands on; a failure is recorded and holds the pod up, nobody else."""

    def __init__(
        self, *, network: Network, cgroups: CgroupStep, directories: PodDirectories, recorder: CauseRecorder
    ) -> None:
        self._network = network
        self._cgroups = cgroups
        self._directories = directories
        self._recorder = recorder

    def network_error(self, pod: Pod, *, cause: CauseId | None) -> str | None:
        """Why the pod can have no network now, or None. A pod in the host's network needs none of its own."""
        error = self._network.network_error()
        if error is None or pod.spec.host_network:
            return None
        text = f"{NETWORK_NOT_READY}: {error}"
        self._recorder.record(retried(pod, "NetworkNotReady", text), parent=cause)
        return text

    async def give_cgroup(
        self, pod: Pod, status: PodRuntimeStatus, reported: PodStatus, *, cause: CauseId | None
    ) -> bool:
        """Give the pod its cgroup. True if it had to be killed for that, so that what was seen of it is old."""
        return await self._cgroups.prepare(pod, status, reported, cause=cause)

    async def give_directories(self, pod: Pod, *, cause: CauseId | None) -> None:
        """Make the pod's directories."""
        try:
            await self._directories.prepare_pod(pod)
        except KletError as error:
            finding = retried(pod, "Failed", f"error making pod data directories: {error}")
            self._recorder.record(finding, parent=cause)
            raise

    async def share_anew(self, *, without: PodUID | None = None) -> None:
        """A pod has stopped: share the node out between the others."""
        await self._cgroups.balance(without=without)

    async def take_back(self, pod: Pod) -> None:
        """Release what a pod held that has ended."""
        await self._cgroups.release(pod)
        await self._directories.release_pod(uid_of(pod))


def retried(pod: Pod, decision: str, message: str) -> Finding:
    """A step of a pod failed, and its worker will try it again."""
    return Finding(
        subject=subject_of(pod),
        decider="sync.pod_sync",
        decision=decision,
        message=message,
        next="try again after a back-off",
    )
