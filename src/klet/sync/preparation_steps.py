"""The preparation steps for network, objects, directories, volumes and pull secrets; see also `cgroup_step.py`."""

from datetime import UTC, datetime

from klet.api.pod import Pod
from klet.errors import KletError
from klet.images.pull_secrets import PullSecrets
from klet.model.causes import CauseId, CauseRecorder
from klet.model.pods import uid_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.verdicts import Reject
from klet.node.runtime_state import RuntimeState
from klet.sync.pod_host_resources import PodHostResources
from klet.sync.preparation import PreparationStep, StepIncomplete, Stopped, SyncedPod
from klet.sync.requeue import StepFailure
from klet.volumes.errors import AttachLimitReached, WaitFailed
from klet.volumes.pod_volumes import PodVolumes

DECIDER = "sync.pod_sync"
RETRY = "try again after a back-off"
AT_ONCE = datetime.min.replace(tzinfo=UTC)
"""After a timeout the wait begins again at once, so that the pod notices when its volumes are ready."""


class NetworkStep(PreparationStep):
    """Holds pods back while the network of the runtime is not ready."""

    name = "network"

    def __init__(self, *, network: RuntimeState, recorder: CauseRecorder) -> None:
        self._network = network
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)

    async def keep(self, synced: SyncedPod) -> StepIncomplete | Stopped | None:
        error = self._network.network_error()
        # A pod in the host's network needs no network of its own.
        if error is None or synced.pod.spec.host_network:
            return None
        self._decisions.for_pod(synced.pod).record(
            Reason.NETWORK_NOT_READY, f"network is not ready: {error}", next_step=RETRY, parent=synced.cause
        )
        return StepIncomplete(StepFailure.NETWORK_NOT_READY)


class DirectoryStep(PreparationStep):
    """Makes a pod's directories. They stay until no source has the pod; its user namespace is released before."""

    name = "directories"

    def __init__(self, *, directories: PodHostResources, recorder: CauseRecorder) -> None:
        self._directories = directories
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)

    async def prepare(self, pod: Pod, *, cause: CauseId | None) -> StepIncomplete | None:
        try:
            await self._directories.prepare_pod(pod)
        except KletError as error:
            text = f"error making pod data directories: {error}"
            self._decisions.for_pod(pod).record(Reason.FAILED, text, next_step=RETRY, parent=cause)
            raise
        return None

    async def release(self, pod: Pod) -> None:
        await self._directories.release_ids(uid_of(pod))


class ObjectStep(PreparationStep):
    """Registers the objects that a pod refers to; an early step, so that they arrive while later steps run."""

    name = "objects"

    def __init__(self, volumes: PodVolumes) -> None:
        self._volumes = volumes

    async def keep(self, synced: SyncedPod) -> StepIncomplete | Stopped | None:
        self._volumes.register(synced.pod)
        return None


class VolumeStep(PreparationStep):
    """Waits until a pod has its volumes."""

    name = "volumes"

    may_be_left_out = True

    def __init__(self, *, volumes: PodVolumes, held: PodHostResources, recorder: CauseRecorder) -> None:
        self._volumes = volumes
        self._held = held
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)

    def refresh(self, pod: Pod) -> None:
        self._volumes.refresh(pod)

    async def prepare(self, pod: Pod, *, cause: CauseId | None) -> StepIncomplete | None:
        if not pod.spec.volumes:
            return None
        try:
            await self._volumes.until_mounted(pod)
        except AttachLimitReached as error:
            return StepIncomplete(rejection=Reject(Reason.VOLUME_ATTACHMENT_LIMIT_EXCEEDED, str(error)))
        except WaitFailed as error:
            # The error of a volume that is retried has been recorded by the volume manager.
            decision = Reason.VOLUMES_NOT_MOUNTED if error.is_timeout else Reason.FAILED_MOUNT
            text = f"Unable to attach or mount volumes: {error}"
            self._decisions.for_pod(pod).record(decision, text, next_step=RETRY, parent=cause)
            return StepIncomplete(retry_at=AT_ONCE if error.is_timeout else None)
        return None

    async def release(self, pod: Pod) -> None:
        await self._held.release_volumes(uid_of(pod))


class PullSecretStep(PreparationStep):
    """Records which pull secrets of a pod are missing. Its images are pulled without them."""

    name = "pull_secrets"

    may_be_left_out = True

    def __init__(self, *, pull_secrets: PullSecrets, recorder: CauseRecorder) -> None:
        self._pull_secrets = pull_secrets
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)

    async def prepare(self, pod: Pod, *, cause: CauseId | None) -> StepIncomplete | None:
        if pod.spec.image_pull_secrets and (missing := await self._pull_secrets.find_missing(pod)):
            names = ", ".join(missing)
            text = (
                f"Unable to retrieve some image pull secrets ({names}); attempting to pull the image may not succeed."
            )
            self._decisions.for_pod(pod).record(
                Reason.FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET, text, next_step="pull images without them", parent=cause
            )
        return None
