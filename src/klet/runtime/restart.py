"""Whether a container that is not running should be started again, by policies and rules (ContainerShouldRestart)."""

from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod, PodStatus
from klet.model.restart_rules import RESTART, RESTART_ALL, find_rule, should_restart_all
from klet.model.runtime import ContainerRecord, PodRuntimeStatus, RuntimeContainerState

ON_FAILURE = "OnFailure"
NEVER = "Never"


def effective_policy(container: Container | EphemeralContainer, pod: Pod) -> str:
    """Return the container's own restart policy if it has one, else the pod's."""
    return container.restart_policy or pod.spec.restart_policy


def restarts_after(
    container: Container | EphemeralContainer, pod: Pod, exit_code: int, *, restart_all: bool = False
) -> bool:
    """Say whether an exit with that code leads to another start.

    A rule with an unknown action, as RestartAllContainers is without its gate (`restart_all`), leaves it to the policy.
    """
    rule = find_rule(container, exit_code) if container.restart_policy else None
    if rule is not None and (rule.action == RESTART or (rule.action == RESTART_ALL and restart_all)):
        return True
    match effective_policy(container, pod):
        case "Never":
            return False
        case "OnFailure":
            return exit_code != 0
        case _:
            return True


def should_restart(
    container: Container | EphemeralContainer, pod: Pod, record: ContainerRecord | None, *, restart_all: bool = False
) -> bool:
    """Say whether a container in that state is to be started (ShouldContainerBeRestarted)."""
    if pod.metadata.deletion_timestamp is not None:
        return False
    if record is None:
        return True
    match record.state:
        case RuntimeContainerState.RUNNING:
            return False
        case RuntimeContainerState.EXITED:
            return restarts_after(container, pod, record.exit_code, restart_all=restart_all)
        case RuntimeContainerState.UNKNOWN | RuntimeContainerState.CREATED:
            return True


def comes_back(
    container: Container, pod: Pod, exit_code: int, reported: PodStatus, *, restart_all: bool = False
) -> bool:
    """Say whether a container that was reported to have exited runs again, by itself or with all others of its pod."""
    if restarts_after(container, pod, exit_code, restart_all=restart_all):
        return True
    return restart_all and should_restart_all(pod, None, reported)


def restartable_names(pod: Pod, status: PodRuntimeStatus, *, restart_all: bool = False) -> frozenset[str]:
    """Return the containers that the next sync would start: their status may show why they do not run yet."""

    def is_due(container: Container | EphemeralContainer) -> bool:
        return should_restart(container, pod, status.newest(container.name), restart_all=restart_all)

    spec = pod.spec
    due = [c.name for c in spec.containers if is_due(c)]
    due += [c.name for c in spec.ephemeral_containers if is_due(c)]
    due += [c.name for c in spec.init_containers if is_due(c) and not _has_succeeded(c, status)]
    return frozenset(due)


def _has_succeeded(container: Container, status: PodRuntimeStatus) -> bool:
    record = status.newest(container.name)
    return record is not None and record.state is RuntimeContainerState.EXITED and record.exit_code == 0
