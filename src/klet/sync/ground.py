"""What the node gives a pod before its sandbox, and takes back afterwards.

A network, its cgroup, its directories, its volumes; and a look at what its images are pulled with.
"""

from collections.abc import Sequence
from typing import Protocol

from klet.api.pod import Pod, PodStatus
from klet.errors import KletError
from klet.model.causes import CauseId, CauseRecorder
from klet.model.pods import PodUID, uid_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.runtime import PodRuntimeStatus
from klet.sync.cgroup_step import CgroupStep
from klet.volumes.errors import WaitFailed

DECIDER = "sync.pod_sync"
RETRY = "try again after a back-off"


class PodDirectories(Protocol):
    """Makes the directories a pod needs before its sandbox, and gives back what it held when it is over."""

    async def prepare_pod(self, pod: Pod) -> None: ...

    async def release_volumes(self, uid: PodUID) -> None: ...

    async def release_ids(self, uid: PodUID) -> None: ...


class PodVolumes(Protocol):
    """Gives pods their volumes."""

    def register(self, pod: Pod) -> None:
        """The pod is about to use the objects that it refers to."""
        ...

    def refresh(self, pod: Pod) -> None:
        """Have the volumes of a pod as its spec has them now, without waiting for that."""
        ...

    async def until_mounted(self, pod: Pod) -> None:
        """Return when the pod has every volume that it uses; raises WaitFailed."""
        ...


class PullSecrets(Protocol):
    """Reads the secrets that pods pull their images with."""

    async def find_missing(self, pod: Pod) -> Sequence[str]:
        """Those of a pod that are not to be had."""
        ...


class Network(Protocol):
    """Says whether pods can be given a network."""

    def network_error(self) -> str | None:
        """Why not, or None."""
        ...


class PodGround:
    """Prepares what a pod stands on; a failure is recorded and holds the pod up, nobody else."""

    def __init__(
        self,
        *,
        network: Network,
        cgroups: CgroupStep,
        directories: PodDirectories,
        volumes: PodVolumes,
        pull_secrets: PullSecrets,
        recorder: CauseRecorder,
    ) -> None:
        self._network = network
        self._cgroups = cgroups
        self._directories = directories
        self._volumes = volumes
        self._pull_secrets = pull_secrets
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)

    def lacks_network(self, pod: Pod, *, cause: CauseId | None) -> bool:
        """Whether the pod can have no network now. A pod in the host's network needs none of its own."""
        error = self._network.network_error()
        if error is None or pod.spec.host_network:
            return False
        text = f"network is not ready: {error}"
        self._decisions.for_pod(pod).record(Reason.NETWORK_NOT_READY, text, next_step=RETRY, parent=cause)
        return True

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
            text = f"error making pod data directories: {error}"
            self._decisions.for_pod(pod).record(Reason.FAILED, text, next_step=RETRY, parent=cause)
            raise

    def register_objects(self, pod: Pod) -> None:
        """Have at hand what the pod's environment and volumes refer to."""
        self._volumes.register(pod)

    def refresh_volumes(self, pod: Pod) -> None:
        """Bring the volumes of a pod up to date that nothing has to be done to otherwise."""
        self._volumes.refresh(pod)

    async def give_volumes(self, pod: Pod, *, cause: CauseId | None) -> WaitFailed | None:
        """Wait for the pod's volumes; tells what is wrong if they do not come. The wait may be cancelled."""
        try:
            await self._volumes.until_mounted(pod)
        except WaitFailed as error:
            # What is wrong with a volume that is tried again and again has been told by then.
            decision = Reason.VOLUMES_NOT_MOUNTED if error.is_timeout else Reason.FAILED_MOUNT
            text = f"Unable to attach or mount volumes: {error}"
            self._decisions.for_pod(pod).record(decision, text, next_step=RETRY, parent=cause)
            return error
        return None

    async def look_for_pull_secrets(self, pod: Pod, *, cause: CauseId | None) -> None:
        """Tell which of the pod's secrets are not to be had. Its images are pulled without them."""
        missing = await self._pull_secrets.find_missing(pod)
        if missing:
            names = ", ".join(missing)
            text = (
                f"Unable to retrieve some image pull secrets ({names}); attempting to pull the image may not succeed."
            )
            self._decisions.for_pod(pod).record(
                Reason.FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET, text, next_step="pull images without them", parent=cause
            )

    async def share_anew(self, *, without: PodUID | None = None) -> None:
        """A pod has stopped: share the node out between the others."""
        await self._cgroups.balance(without=without)

    async def take_back(self, pod: Pod) -> None:
        """Release what a pod held that has ended; its cgroup pays for volumes in memory, so they go first."""
        await self._directories.release_volumes(uid_of(pod))
        await self._cgroups.release(pod)
        await self._directories.release_ids(uid_of(pod))
