"""Whether a container that is not running should be started again, by policies and rules (ContainerShouldRestart)."""

from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.model.runtime import ContainerRecord, PodRuntimeStatus, RuntimeContainerState

ON_FAILURE = "OnFailure"
NEVER = "Never"


def effective_policy(container: Container | EphemeralContainer, pod: Pod) -> str:
    """Return the container's own restart policy if it has one, else the pod's."""
    return container.restart_policy or pod.spec.restart_policy


def restarts_after(container: Container | EphemeralContainer, pod: Pod, exit_code: int) -> bool:
    """Say whether an exit with that code leads to another start."""
    if container.restart_policy and _rule_restarts(container, exit_code):
        return True
    match effective_policy(container, pod):
        case "Never":
            return False
        case "OnFailure":
            return exit_code != 0
        case _:
            return True


def should_restart(container: Container | EphemeralContainer, pod: Pod, record: ContainerRecord | None) -> bool:
    """Say whether a container in that state is to be started (ShouldContainerBeRestarted)."""
    if pod.metadata.deletion_timestamp is not None:
        return False
    if record is None:
        return True
    match record.state:
        case RuntimeContainerState.RUNNING:
            return False
        case RuntimeContainerState.EXITED:
            return restarts_after(container, pod, record.exit_code)
        case RuntimeContainerState.UNKNOWN | RuntimeContainerState.CREATED:
            return True


def restartable_names(pod: Pod, status: PodRuntimeStatus) -> frozenset[str]:
    """Return the containers that the next sync would start: their status may show why they do not run yet."""
    spec = pod.spec
    due = [c.name for c in spec.containers if _is_due(c, pod, status)]
    due += [c.name for c in spec.ephemeral_containers if _is_due(c, pod, status)]
    due += [c.name for c in spec.init_containers if _is_due(c, pod, status) and not _has_succeeded(c, status)]
    return frozenset(due)


def _is_due(container: Container | EphemeralContainer, pod: Pod, status: PodRuntimeStatus) -> bool:
    return should_restart(container, pod, status.newest(container.name))


def _has_succeeded(container: Container, status: PodRuntimeStatus) -> bool:
    record = status.newest(container.name)
    return record is not None and record.state is RuntimeContainerState.EXITED and record.exit_code == 0


def _rule_restarts(container: Container | EphemeralContainer, exit_code: int) -> bool:
    """Apply the first rule that matches; an action other than Restart leaves the decision to the policy."""
    for rule in container.restart_policy_rules:
        codes = rule.exit_codes
        if codes is None:
            continue
        listed = exit_code in codes.values
        if (codes.operator == "In" and listed) or (codes.operator == "NotIn" and not listed):
            return rule.action == "Restart"
    return False
