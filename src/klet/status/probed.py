"""Updates a status with a new probe result (SetContainerReadiness, SetContainerStartup)."""

from collections.abc import Sequence

from msgspec.structs import replace

from klet.api.container_status import ContainerStatus
from klet.api.pod import Pod, PodCondition, PodStatus
from klet.model.runtime import ContainerId
from klet.status import conditions


def with_readiness(pod: Pod, status: PodStatus, container: ContainerId, is_ready: bool) -> PodStatus | None:  # noqa: FBT001 - both changes are called alike
    """Return the status with that container ready or not; None if nothing changes."""
    found = find_container(status, container)
    if found is None or found.ready is is_ready:
        return None
    changed = _with_container(status, replace(found, ready=is_ready))
    every = (*changed.init_container_statuses, *changed.container_statuses)
    containers = conditions.containers_ready(pod, every, changed.phase)
    ready = conditions.ready(pod, containers, changed.conditions)
    return replace(changed, conditions=_with_conditions(changed.conditions, ready, containers))


def with_startup(pod: Pod, status: PodStatus, container: ContainerId, is_started: bool) -> PodStatus | None:  # noqa: ARG001, FBT001 - both changes are called alike
    """Return the status with that container started or not; None if nothing changes."""
    found = find_container(status, container)
    if found is None or found.started is is_started:
        return None
    return _with_container(status, replace(found, started=is_started))


def find_container(status: PodStatus, container: ContainerId) -> ContainerStatus | None:
    """Return the status of a running instance; a late result for one that has ended is ignored."""
    every = (*status.container_statuses, *status.init_container_statuses)
    running = (each for each in every if each.state.running is not None)
    return next((each for each in running if each.container_id.rpartition("://")[2] == container), None)


def _with_container(status: PodStatus, changed: ContainerStatus) -> PodStatus:
    def with_it(statuses: Sequence[ContainerStatus]) -> tuple[ContainerStatus, ...]:
        return tuple(changed if each.container_id == changed.container_id else each for each in statuses)

    return replace(
        status,
        container_statuses=with_it(status.container_statuses),
        init_container_statuses=with_it(status.init_container_statuses),
    )


def _with_conditions(old: Sequence[PodCondition], *new: PodCondition) -> tuple[PodCondition, ...]:
    """Put each in its place. The generation is that of the last whole look at the pod."""
    by_type = {condition.type: condition for condition in old}
    for condition in new:
        before = by_type.get(condition.type)
        generation = before.observed_generation if before is not None else 0
        by_type[condition.type] = replace(condition, observed_generation=generation)
    return tuple(by_type.values())
