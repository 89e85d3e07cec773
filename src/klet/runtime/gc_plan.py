"""Which dead containers, sandboxes and logs may go (container garbage collection). Pure.

What is left of a live pod is kept as far as people look at it: by default the newest dead instance of each container,
whose end its status shows and whose log `--previous` reads.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from klet.api.pod import Pod
from klet.model.pods import PodUID
from klet.model.runtime import ContainerId, ContainerRecord, PodRuntimeStatus, RuntimeContainerState, SandboxId

_SHORTEST_ID = 6


class GcPolicy(Struct, frozen=True, kw_only=True):
    """How much of the dead is kept; a negative number is no limit."""

    min_age: timedelta = timedelta()
    max_per_container: int = 1
    max_containers: int = -1


class ListedContainer(Struct, frozen=True, kw_only=True):
    """A container as the runtime lists it."""

    id: ContainerId
    uid: PodUID
    name: str
    state: RuntimeContainerState
    created_at: datetime
    sandbox_id: SandboxId


class ListedSandbox(Struct, frozen=True, kw_only=True):
    """A sandbox as the runtime lists it."""

    id: SandboxId
    uid: PodUID
    is_ready: bool
    created_at: datetime


def plan_containers(
    listed: Iterable[ListedContainer], policy: GcPolicy, *, removable: Collection[PodUID], now: datetime
) -> tuple[ListedContainer, ...]:
    """Return the containers to remove, in the order of their removal. Of `removable` pods all that is dead goes."""
    removed: list[ListedContainer] = []
    groups = _dead_groups(listed, youngest=now - policy.min_age)
    for key in [key for key in groups if key[0] in removable]:
        removed += reversed(groups.pop(key))
    if policy.max_per_container >= 0:
        removed += _keep_newest(groups, policy.max_per_container)
    if policy.max_containers >= 0 and sum(map(len, groups.values())) > policy.max_containers:
        removed += _keep_newest(groups, max(1, policy.max_containers // len(groups)))
        left = sorted((container for group in groups.values() for container in group), key=_age)
        removed += left[: max(0, len(left) - policy.max_containers)]
    return tuple(removed)


def plan_sandboxes(
    sandboxes: Iterable[ListedSandbox], *, occupied: Collection[SandboxId], removable: Collection[PodUID]
) -> tuple[SandboxId, ...]:
    """Return the sandboxes to remove: neither ready nor holding a container; of pods that stay the newest is kept."""
    by_pod: dict[PodUID, list[ListedSandbox]] = {}
    for sandbox in sorted(sandboxes, key=lambda found: found.created_at, reverse=True):
        by_pod.setdefault(sandbox.uid, []).append(sandbox)
    return tuple(
        sandbox.id
        for uid, found in by_pod.items()
        for sandbox in (found if uid in removable else found[1:])
        if not sandbox.is_ready and sandbox.id not in occupied
    )


def plan_links(dangling: Iterable[str], states: Mapping[ContainerId, RuntimeContainerState]) -> tuple[str, ...]:
    """Return the links to remove. One of a living container may only seem to dangle, while its log is rotated."""
    return tuple(name for name in dangling if not _is_link_of_living(name, states))


def plan_after_death(status: PodRuntimeStatus, *, keep: int, is_removable: bool) -> tuple[ContainerRecord, ...]:
    """Return the ended containers of one pod that are no longer needed, oldest first."""
    ended = [record for record in status.containers if record.state is RuntimeContainerState.EXITED]
    if is_removable:
        return tuple(reversed(ended))
    surplus: list[ContainerRecord] = []
    for name in dict.fromkeys(record.name for record in ended):
        surplus += [record for record in ended if record.name == name][max(keep, 1) :]
    return tuple(sorted(surplus, key=lambda record: record.created_at))


def plan_init_pruning(pod: Pod, status: PodRuntimeStatus) -> tuple[ContainerRecord, ...]:
    """Return all ended instances of init containers but the newest: that one says whether to run it again."""
    over = {RuntimeContainerState.EXITED, RuntimeContainerState.UNKNOWN}
    ended = [record for record in status.containers if record.state in over]
    return tuple(
        record
        for container in pod.spec.init_containers
        for record in [each for each in ended if each.name == container.name][1:]
    )


_Key = tuple[PodUID, str]


def _dead_groups(listed: Iterable[ListedContainer], *, youngest: datetime) -> dict[_Key, list[ListedContainer]]:
    """Return the dead by pod and container, newest first.

    A container that was created last is about to be started, so it is not dead: were it counted, it would push out the
    one before it, which is what people look at next.
    """
    every: dict[_Key, list[ListedContainer]] = {}
    for container in sorted(listed, key=_age, reverse=True):
        every.setdefault((container.uid, container.name), []).append(container)
    groups: dict[_Key, list[ListedContainer]] = {}
    for key, found in every.items():
        is_starting = found[0].state is RuntimeContainerState.CREATED
        dead = [
            container
            for container in found[1 if is_starting else 0 :]
            if container.state is not RuntimeContainerState.RUNNING and container.created_at <= youngest
        ]
        if dead:
            groups[key] = dead
    return groups


def _keep_newest(groups: Mapping[_Key, list[ListedContainer]], number: int) -> list[ListedContainer]:
    """Cut each group down; return what was cut off, oldest first."""
    removed: list[ListedContainer] = []
    for group in groups.values():
        removed += reversed(group[number:])
        del group[number:]
    return removed


def _is_link_of_living(name: str, states: Mapping[ContainerId, RuntimeContainerState]) -> bool:
    """Return whether a link belongs to a living container. A long name is cut, and with it the id at its end."""
    start = name.removesuffix(".log").rpartition("-")[2]
    if len(start) < _SHORTEST_ID:
        return False
    return any(id_.startswith(start) and state is not RuntimeContainerState.EXITED for id_, state in states.items())


def _age(container: ListedContainer) -> datetime:
    return container.created_at
