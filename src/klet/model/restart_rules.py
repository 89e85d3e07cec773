"""What restart rules ask for when a container exits; RestartAllContainers restarts the whole pod in place.

Upstream's FindMatchingContainerRestartRule, ShouldAllContainersRestart and their relatives. Pure; whether the action is
in force at all (gate RestartAllContainersOnContainerExits) is for the caller to say.
"""

from collections.abc import Iterator

from klet.api.container import Container, ContainerRestartRule, EphemeralContainer
from klet.api.pod import Pod, PodSpec, PodStatus
from klet.model.conditions import TRUE
from klet.model.runtime import ContainerRecord, PodRuntimeStatus, RuntimeContainerState

RESTART = "Restart"
RESTART_ALL = "RestartAllContainers"
ALL_RESTARTING = "AllContainersRestarting"
"""The condition of a pod whose containers are being removed, all to be started again."""
RESTARTING_ALL = "RestartingAllContainers"
"""The reason of a container that was removed for it, as a state that waits and as the end of what ran before."""


def find_rule(container: Container | EphemeralContainer, exit_code: int) -> ContainerRestartRule | None:
    """Return the first rule that matches the exit code; those after it never count."""
    for rule in container.restart_policy_rules:
        codes = rule.exit_codes
        if codes is None:
            continue
        listed = exit_code in codes.values
        if (codes.operator == "In" and listed) or (codes.operator == "NotIn" and not listed):
            return rule
    return None


def restarts_all(container: Container | EphemeralContainer, exit_code: int) -> bool:
    """Return whether an exit with that code asks for a restart of all containers."""
    rule = find_rule(container, exit_code)
    return rule is not None and rule.action == RESTART_ALL


def is_source(container: Container | EphemeralContainer, record: ContainerRecord) -> bool:
    """Return whether that end of a container asks for a restart of all containers."""
    return record.state is RuntimeContainerState.EXITED and restarts_all(container, record.exit_code)


def may_restart_all(spec: PodSpec) -> bool:
    """Return whether any exit could restart all containers (AllContainersCouldRestart)."""
    return any(rule.action == RESTART_ALL for container in _ruled(spec) for rule in container.restart_policy_rules)


def is_restarting_all(status: PodStatus) -> bool:
    """Return whether a status says that all containers are being removed."""
    return any(condition.type == ALL_RESTARTING and condition.status == TRUE for condition in status.conditions)


def should_restart_all(pod: Pod, seen: PodRuntimeStatus | None, reported: PodStatus) -> bool:
    """Return whether all containers are to restart, by the runtime and by what was reported.

    What was reported goes on until it is done. A container that the runtime shows as anything but ended asks for
    nothing, whatever was reported of it; without a runtime status (`seen`) the reported ends decide.
    """
    if is_restarting_all(reported):
        return True
    ends = {
        each.name: each.state.terminated.exit_code
        for each in (*reported.init_container_statuses, *reported.container_statuses)
        if each.state.terminated is not None
    }
    for container in _ruled(pod.spec):
        record = seen.newest(container.name) if seen is not None else None
        if seen is not None and (record is None or record.state is not RuntimeContainerState.EXITED):
            continue
        if record is not None and restarts_all(container, record.exit_code):
            return True
        if container.name in ends and restarts_all(container, ends[container.name]):
            return True
    return False


def is_cleaned_up(pod: Pod, seen: PodRuntimeStatus) -> bool:
    """Return whether nothing is left of the containers that restart (AllContainersRestartCleanedUp)."""
    return all(seen.newest(container.name) is None for container in _ruled(pod.spec))


def has_begun_again(pod: Pod, seen: PodRuntimeStatus, reported: PodStatus) -> bool:
    """Return whether a status is out of date that says that all containers are being removed.

    So it is after a crash of the agent that had already started them again. What asked for it is removed last: without
    it, containers that were made after the condition became true are those of the next round. Upstream would remove
    them again.
    """
    since = next((each.last_transition_time for each in reported.conditions if each.type == ALL_RESTARTING), None)
    if since is None:
        return False
    known = {container.name: container for container in _ruled(pod.spec)}
    records = [record for record in seen.containers if record.name in known]
    return all(record.created_at >= since and not is_source(known[record.name], record) for record in records)


def _ruled(spec: PodSpec) -> Iterator[Container]:
    """Return the containers that can have rules, and that restart together: all but the ephemeral ones."""
    yield from spec.init_containers
    yield from spec.containers
