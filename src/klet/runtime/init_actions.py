"""Which init containers run next, and whether the pod is initialized (computeInitContainerActions).

Init containers run one after another; sidecars (restart policy Always) stay and are kept running beside the others.
"""

from msgspec import Struct, field

from klet.api.container import Container
from klet.api.pod import Pod
from klet.api.pod_resources import is_sidecar
from klet.model.probes import ProbeKey, ProbeKind, ProbeResult, ProbeView
from klet.model.runtime import ContainerId, ContainerRecord, PodRuntimeStatus, RuntimeContainerState
from klet.runtime.hashing import container_hash
from klet.runtime.restart import NEVER, effective_policy, should_restart

OOM_KILLED = "OOMKilled"


class InitKill(Struct, frozen=True):
    """An init container to kill before it is started again."""

    id: ContainerId
    name: str
    message: str
    probe: ProbeKind | None = None


class InitPlan(Struct, frozen=True, kw_only=True):
    """Which init containers to start (ascending) and to kill, and whether regular containers may run."""

    initialized: bool
    kill_pod: bool = False
    start: tuple[int, ...] = ()
    kill: tuple[InitKill, ...] = ()
    why: str = ""


class _Walk(Struct):
    """What the walk from the last init container to the first has found."""

    initialized: bool
    later_seen: bool
    """True once a later init container has a record, or a regular one runs: earlier plain ones are then done."""
    restart_all: bool
    start: list[int] = field(default_factory=list)
    kill: list[InitKill] = field(default_factory=list)
    fatal: str = ""


def plan_init_containers(
    pod: Pod, status: PodRuntimeStatus, *, probes: ProbeView, restart_all: bool = False
) -> InitPlan:
    """Decide from the last init container to the first, because the latest one that ran says how far the pod got."""
    containers = pod.spec.init_containers
    if not containers:
        return InitPlan(initialized=True)
    live = {RuntimeContainerState.CREATED, RuntimeContainerState.RUNNING}
    # One that was made in an earlier sandbox, and never started, says nothing about this one.
    here = {record.name for record in status.active_containers() if record.state in live}
    running = any(container.name in here for container in pod.spec.containers)
    walk = _Walk(initialized=running, later_seen=running, restart_all=restart_all)
    for index in range(len(containers) - 1, -1, -1):
        record = status.newest(containers[index].name)
        if record is None:
            if walk.later_seen and is_sidecar(containers[index]):
                walk.start.append(index)
            continue
        if walk.later_seen and not is_sidecar(containers[index]):
            continue
        _visit(pod, index, record, walk, probes)
        if walk.fatal:
            return InitPlan(initialized=False, kill_pod=True, why=walk.fatal)
        walk.later_seen = True
    if not walk.later_seen:
        walk.start.append(0)
    return InitPlan(initialized=walk.initialized, start=tuple(reversed(walk.start)), kill=tuple(reversed(walk.kill)))


def _visit(pod: Pod, index: int, record: ContainerRecord, walk: _Walk, probes: ProbeView) -> None:
    container = pod.spec.init_containers[index]
    match record.state:
        case RuntimeContainerState.CREATED:
            walk.start.append(index)
        case RuntimeContainerState.RUNNING:
            if is_sidecar(container):
                _visit_running_sidecar(pod, index, record, walk, probes)
        case RuntimeContainerState.EXITED:
            _visit_exited(pod, index, record, walk)
        case RuntimeContainerState.UNKNOWN:
            if not is_sidecar(container) and effective_policy(container, pod) == NEVER:
                walk.fatal = f"init container {container.name} is in an unknown state and must not be restarted"
                return
            message = 'Init container is in "unknown" state, try killing it before restart'
            walk.kill.append(InitKill(record.id, container.name, message))
            walk.start.append(index)


def _visit_exited(pod: Pod, index: int, record: ContainerRecord, walk: _Walk) -> None:
    container = pod.spec.init_containers[index]
    if is_sidecar(container):
        walk.start.append(index)
    elif record.exit_code != 0 or record.reason == OOM_KILLED:
        if should_restart(container, pod, record, restart_all=walk.restart_all):
            walk.start.append(index)
        else:
            walk.fatal = f"init container {container.name} failed and must not be restarted"
    else:
        _advance(pod, index, walk)


def _advance(pod: Pod, index: int, walk: _Walk) -> None:
    """Go on after init container `index` has completed: the next one may start, or the pod is initialized."""
    if index == len(pod.spec.init_containers) - 1:
        walk.initialized = True
    else:
        walk.start.append(index + 1)


def _visit_running_sidecar(pod: Pod, index: int, record: ContainerRecord, walk: _Walk, probes: ProbeView) -> None:
    container = pod.spec.init_containers[index]
    if container.startup_probe is not None:
        startup = probes.get(ProbeKey(record.id, ProbeKind.STARTUP))
        if startup is ProbeResult.FAILURE:
            message = f"Init container {container.name} failed startup probe"
            walk.kill.append(InitKill(record.id, container.name, message, ProbeKind.STARTUP))
            walk.start.append(index)
        if startup is not ProbeResult.SUCCESS:
            return
    if index == len(pod.spec.init_containers) - 1:
        walk.initialized = True
    elif not walk.later_seen:
        walk.start.append(index + 1)
    kill = _sidecar_kill(container, record, probes)
    if kill is not None:
        walk.kill.append(kill)
        walk.start.append(index)


def _sidecar_kill(container: Container, record: ContainerRecord, probes: ProbeView) -> InitKill | None:
    if record.spec_hash != container_hash(container):
        return InitKill(record.id, container.name, f"Init container {container.name} definition changed")
    if container.liveness_probe is None:
        return None
    if probes.get(ProbeKey(record.id, ProbeKind.LIVENESS)) is ProbeResult.FAILURE:
        message = f"Init container {container.name} failed liveness probe"
        return InitKill(record.id, container.name, message, ProbeKind.LIVENESS)
    return None
