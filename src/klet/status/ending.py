"""The last status of a pod: what is not known of its containers by now never will be (TerminatePod)."""

from collections.abc import Sequence

from msgspec.structs import replace

from klet.api.container_status import ContainerState, ContainerStateTerminated, ContainerStatus
from klet.api.pod import Pod, PodCondition, PodStatus
from klet.api.pod_resources import is_sidecar
from klet.model.conditions import FALSE, READY, TRUE
from klet.model.pods import is_static
from klet.status.conditions import CONTAINERS_READY
from klet.status.containers import LOST_AT_TERMINATION, LOST_EXIT_CODE, STATUS_UNKNOWN
from klet.status.phase import FAILED, is_terminal


def end_status(pod: Pod, status: PodStatus) -> PodStatus:
    """Return the last status: no container runs, and none that may have run is waiting."""
    init = status.init_container_statuses
    begun = count_begun(init)
    regular = status.container_statuses
    phase = status.phase if is_static(pod) or is_terminal(status.phase) else FAILED
    return replace(
        status,
        init_container_statuses=(*map(_ended, init[:begun]), *init[begun:]),
        container_statuses=tuple(map(_ended, regular)) if is_initialized(pod, status) else regular,
        conditions=tuple(map(_no_longer_ready, status.conditions)) if phase == FAILED else status.conditions,
        phase=phase,
    )


def is_initialized(pod: Pod, status: PodStatus) -> bool:
    """Return whether the regular containers of the pod could ever start."""
    if not pod.spec.init_containers or any(map(_has_begun, status.container_statuses)):
        return True
    if not status.init_container_statuses:
        return False
    last = status.init_container_statuses[-1]
    container = next((each for each in pod.spec.init_containers if each.name == last.name), None)
    if container is not None and is_sidecar(container):
        return last.state.running is not None and bool(last.started)
    ends = (last.state.terminated, last.last_state.terminated)
    return any(end is not None and end.exit_code == 0 for end in ends)


def count_begun(init: Sequence[ContainerStatus]) -> int:
    """Return how many init containers may have run: those up to the last that shows it, and the first in any case."""
    begun = [number for number, status in enumerate(init, start=1) if _has_begun(status)]
    return begun[-1] if begun else min(1, len(init))


def _no_longer_ready(condition: PodCondition) -> PodCondition:
    """Return the condition as not ready: what was reported last may be from before its end."""
    if condition.type in {READY, CONTAINERS_READY} and condition.status == TRUE:
        return replace(condition, status=FALSE, reason="PodFailed", message="")
    return condition


def _has_begun(status: ContainerStatus) -> bool:
    return status.state.waiting is None or status.last_state.terminated is not None


def _ended(status: ContainerStatus) -> ContainerStatus:
    if status.state.terminated is not None:
        return status
    lost = ContainerStateTerminated(exit_code=LOST_EXIT_CODE, reason=STATUS_UNKNOWN, message=LOST_AT_TERMINATION)
    return replace(status, state=ContainerState(terminated=lost))
