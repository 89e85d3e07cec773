"""API container statuses from runtime records and the statuses reported before (convertToAPIContainerStatuses).

Only what the runtime shows and what was already reported enters: no clock, no I/O. Resources are reported as they were
given, as far as the runtime says so (convertContainerStatusResources).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from klet.api.container import Container, EphemeralContainer, ResourceRequirements, VolumeMount
from klet.api.container_status import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    VolumeMountStatus,
)
from klet.api.pod import Pod
from klet.api.quantity import Format, Quantity
from klet.api.times import Time
from klet.model import runtime as seen
from klet.model.allocation import NOTHING, PodResources
from klet.model.foreign_text import LONGEST_OUTPUT, shorten
from klet.model.pod_resources import CPU, MEMORY
from klet.model.restart_rules import RESTARTING_ALL
from klet.model.runtime import ContainerRecord, GivenResources, RuntimeContainerState

CONTAINER_CREATING = "ContainerCreating"
POD_INITIALIZING = "PodInitializing"
STATUS_UNKNOWN = "ContainerStatusUnknown"
LOST_EXIT_CODE = 137
MAX_MESSAGES = 12288
MAX_WAITING_MESSAGES = 256 * 1024
"""Bytes of all waiting messages of a pod together; upstream has no limit, but the API server has."""
MIN_WAITING_MESSAGE = 128
LOST_BEFORE_DELETION = "The container could not be located when the pod was deleted.  The container used to be Running"
LOST_AT_TERMINATION = "The container could not be located when the pod was terminated"
LEAST_LIMIT = 10
LEAST_REQUEST = 2
"""The kernel takes no less, in thousandths of a CPU: a smaller wish comes back larger, and is reported as it was."""
REMOVED_TO_RESTART = "The container is removed because RestartAllContainers in place"


class StatusFeatures(Struct, frozen=True, kw_only=True):
    """What optional features change in the statuses of containers."""

    stop_signals: bool = False
    restart_all: bool = False
    is_restarting: bool = False
    """All containers of the pod are being removed, to be started again."""


PLAIN = StatusFeatures()


def build_container_statuses(
    pod: Pod,
    containers: Sequence[Container | EphemeralContainer],
    records: seen.PodRuntimeStatus,
    previous: Sequence[ContainerStatus],
    *,
    resources: PodResources,
    runtime_name: str,
    features: StatusFeatures = PLAIN,
) -> tuple[ContainerStatus, ...]:
    """Return one status for each container of the spec, in spec order."""
    before = {status.name: status for status in previous}
    return tuple(
        _container_status(pod, container, records, before.get(container.name), resources, runtime_name, features)
        for container in containers
    )


def overlay_waiting(
    statuses: Sequence[ContainerStatus], failures: Mapping[str, seen.StartFailure], restartable: frozenset[str]
) -> tuple[ContainerStatus, ...]:
    """Show why a container that is to be started again is not running yet."""
    return tuple(
        _waiting_for(status, failures[status.name])
        if status.name in restartable and status.name in failures
        else status
        for status in statuses
    )


def cut_messages(pod: Pod, statuses: Sequence[ContainerStatus]) -> tuple[ContainerStatus, ...]:
    """Give each container its share of the bytes that the messages of a pod together may have."""
    spec = pod.spec
    count = len(spec.containers) + len(spec.init_containers) + len(spec.ephemeral_containers) or 1
    share = MAX_MESSAGES // count
    waiting = max(MIN_WAITING_MESSAGE, min(LONGEST_OUTPUT, MAX_WAITING_MESSAGES // count))
    return tuple(
        replace(
            status, state=_cut_waiting(_cut(status.state, share), waiting), last_state=_cut(status.last_state, share)
        )
        for status in statuses
    )


def _cut_waiting(state: ContainerState, limit: int) -> ContainerState:
    if state.waiting is None or (message := shorten(state.waiting.message, limit)) is state.waiting.message:
        return state
    return replace(state, waiting=replace(state.waiting, message=message))


def _cut(state: ContainerState, limit: int) -> ContainerState:
    if state.terminated is None or len(state.terminated.message.encode()) <= limit:
        return state
    message = state.terminated.message.encode()[:limit].decode(errors="ignore")
    return replace(state, terminated=replace(state.terminated, message=message))


def _waiting_for(status: ContainerStatus, failure: seen.StartFailure) -> ContainerStatus:
    waiting = ContainerState(waiting=ContainerStateWaiting(reason=failure.reason, message=failure.message))
    if status.state.terminated is not None:
        return replace(status, state=waiting, last_state=status.state)
    return replace(status, state=waiting)


def _container_status(
    pod: Pod,
    container: Container | EphemeralContainer,
    records: seen.PodRuntimeStatus,
    previous: ContainerStatus | None,
    resources: PodResources,
    runtime_name: str,
    features: StatusFeatures,
) -> ContainerStatus:
    found = [record for record in records.containers if record.name == container.name][:2]
    if not found:
        known = _without_record(pod, container, previous)
        if features.is_restarting and previous is not None and previous.state.waiting is None:
            return _removed(known, previous)
        return known
    newest = _converted(found[0], previous, runtime_name, features)
    # A record may vanish before its start was ever seen; what was counted with it stays counted.
    restarts = max(newest.restart_count, previous.restart_count if previous is not None else 0)
    newest = replace(
        newest,
        restart_count=restarts,
        volume_mounts=_volume_mounts(container, record=found[0]),
        resources=build_resources(resources, found[0], previous),
        allocated_resources=resources.admitted.of(container.name).requests,
    )
    if len(found) > 1:
        newest = replace(newest, last_state=_converted(found[1], previous, runtime_name, features).state)
    return newest


def _without_record(
    pod: Pod, container: Container | EphemeralContainer, previous: ContainerStatus | None
) -> ContainerStatus:
    default = ContainerStatus(
        name=container.name,
        image=container.image,
        state=ContainerState(
            waiting=ContainerStateWaiting(reason=POD_INITIALIZING if pod.spec.init_containers else CONTAINER_CREATING)
        ),
        volume_mounts=_volume_mounts(container, previous),
    )
    if previous is None:
        return default
    if previous.state.terminated is not None:
        return previous
    default = replace(default, restart_count=previous.restart_count, last_state=previous.last_state)
    lost = previous.state.running is not None
    if not lost or default.last_state.terminated is not None:
        return default
    end = ContainerStateTerminated(exit_code=LOST_EXIT_CODE, reason=STATUS_UNKNOWN, message=LOST_BEFORE_DELETION)
    restarts = default.restart_count + (1 if pod.metadata.deletion_timestamp is None else 0)
    return replace(default, last_state=ContainerState(terminated=end), restart_count=restarts)


def _removed(known: ContainerStatus, previous: ContainerStatus) -> ContainerStatus:
    """Return the status of a container that was removed so that all containers of the pod start again."""
    end = ContainerStateTerminated(exit_code=LOST_EXIT_CODE, reason=RESTARTING_ALL, message=REMOVED_TO_RESTART)
    return replace(
        known,
        state=ContainerState(waiting=ContainerStateWaiting(reason=RESTARTING_ALL, message=REMOVED_TO_RESTART)),
        last_state=ContainerState(terminated=end),
        restart_count=previous.restart_count + 1,
    )


def _converted(
    record: seen.ContainerRecord, previous: ContainerStatus | None, runtime_name: str, features: StatusFeatures
) -> ContainerStatus:
    container_id = f"{runtime_name}://{record.id}"
    restarts = record.restart_count
    match record.state:
        case seen.RuntimeContainerState.RUNNING:
            state = ContainerState(running=ContainerStateRunning(started_at=_seconds(record.started_at)))
            # Where all containers restarted under another kubelet, the runtime has counted from zero since then.
            if features.restart_all and previous is not None and previous.state.terminated is not None:
                restarts = max(restarts, previous.restart_count + 1)
        case seen.RuntimeContainerState.CREATED:
            state = ContainerState(waiting=ContainerStateWaiting())
        case seen.RuntimeContainerState.EXITED:
            state = ContainerState(
                terminated=ContainerStateTerminated(
                    exit_code=record.exit_code,
                    reason=record.reason,
                    message=record.message,
                    started_at=_seconds(record.started_at),
                    finished_at=_seconds(record.finished_at),
                    container_id=container_id,
                )
            )
        case seen.RuntimeContainerState.UNKNOWN:
            if previous is not None and previous.state.running is not None:
                reason = RESTARTING_ALL if features.is_restarting else STATUS_UNKNOWN
                end = ContainerStateTerminated(exit_code=LOST_EXIT_CODE, reason=reason, message=LOST_AT_TERMINATION)
                state = ContainerState(terminated=end)
                restarts = previous.restart_count + 1
            else:
                state = ContainerState(waiting=ContainerStateWaiting())
    return ContainerStatus(
        name=record.name,
        container_id=container_id,
        image=record.image,
        image_id=record.image_ref,
        restart_count=restarts,
        state=state,
        user=record.user,
        stop_signal=(record.stop_signal or None) if features.stop_signals else None,
    )


def _volume_mounts(
    container: Container | EphemeralContainer,
    previous: ContainerStatus | None = None,
    record: seen.ContainerRecord | None = None,
) -> tuple[VolumeMountStatus, ...]:
    """Return the volume mounts: those reported before, until the runtime shows the real ones."""
    if record is None and previous is not None and previous.volume_mounts:
        return previous.volume_mounts
    return tuple(
        VolumeMountStatus(
            name=mount.name,
            mount_path=mount.mount_path,
            read_only=mount.read_only,
            recursive_read_only=_recursion(mount, record) if mount.read_only else None,
        )
        for mount in container.volume_mounts
    )


def _recursion(mount: VolumeMount, record: seen.ContainerRecord | None) -> str:
    is_sure = mount.recursive_read_only == "Enabled"
    return "Enabled" if is_sure or (record and mount.mount_path in record.recursive_read_only) else "Disabled"


def _seconds(at: datetime | None) -> Time | None:
    """Cut to whole seconds, as API times have them."""
    return Time.of(at) if at else None


def build_resources(
    resources: PodResources, record: ContainerRecord, previous: ContainerStatus | None
) -> ResourceRequirements:
    """Return what the container was admitted with, overlaid with what it runs with."""
    admitted = resources.admitted.of(record.name)
    if record.state is not RuntimeContainerState.RUNNING:
        return admitted
    actuated = resources.actuated.containers.get(record.name, NOTHING)
    given = resources.actual.get(record.name, GivenResources())
    before = _reported_before(record, previous)
    limits, requests = dict(admitted.limits), dict(admitted.requests)
    if limits:
        _overlay_cpu(limits, given.cpu_limit, before.limits, least=LEAST_LIMIT)
        if given.memory_limit is not None:
            limits[MEMORY] = Quantity.of(given.memory_limit, Format.BINARY_SI)
        else:
            _keep(limits, MEMORY, before.limits)
    if requests:
        _overlay_cpu(requests, given.cpu_request, before.requests, least=LEAST_REQUEST)
        # No runtime reports it: what the container was created with counts, as far as this run of the agent knows it.
        _keep(requests, MEMORY, {**before.requests, **actuated.requests})
    return replace(admitted, limits=limits, requests=requests)


def _reported_before(record: ContainerRecord, previous: ContainerStatus | None) -> ResourceRequirements:
    """Return what this same instance was reported with while it ran."""
    if previous is None or previous.resources is None or previous.state.running is None:
        return ResourceRequirements()
    is_same = previous.container_id.rpartition("://")[2] == record.id
    return previous.resources if is_same else ResourceRequirements()


def _overlay_cpu(wanted: dict[str, Quantity], given: int | None, before: Mapping[str, Quantity], *, least: int) -> None:
    if given is None:
        _keep(wanted, CPU, before)
    elif given > least or wanted.get(CPU, Quantity()).milli_value() > least:
        wanted[CPU] = Quantity.of_milli(given)


def _keep(wanted: dict[str, Quantity], name: str, before: Mapping[str, Quantity]) -> None:
    if name in before:
        wanted[name] = before[name]
