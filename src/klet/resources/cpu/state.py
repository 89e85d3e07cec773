"""Who has which CPUs, and how that is read from and written to the file that upstream has, too. Pure.

A file that does not fit the configuration or the machine is never repaired: containers may run on what it says.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from klet.checkpoint.upstream import CpuManagerState
from klet.errors import KletError
from klet.host.cpulist import format_cpu_list, parse_cpu_list
from klet.host.errors import MalformedFile
from klet.model.pods import BadPodUID, PodUID
from klet.resources.cpu.policy import StaticPolicy
from klet.resources.cpu.topology import CpuSet

NONE: Final = "none"
STATIC: Final = "static"


class CpuStateMismatch(KletError):
    """The file says something else than the configuration or the machine. The message is upstream's."""


class ContainerRef(Struct, frozen=True):
    """A container of a pod."""

    uid: PodUID
    name: str


class CpuState(Struct, frozen=True, kw_only=True):
    """The shared CPUs, and those that containers have alone."""

    shared: CpuSet = frozenset()
    """Where all other containers run (default CPU set)."""
    exclusive: Mapping[PodUID, Mapping[str, CpuSet]] = {}
    reusable: CpuSet = frozenset()
    """Of init containers that end before the next container of their pod starts, which gets them again."""
    reusable_by: PodUID | None = None
    """The pod that is being admitted; another one ends that."""

    def of(self, uid: PodUID, container: str) -> CpuSet | None:
        """Return the CPUs that a container has alone."""
        return self.exclusive.get(uid, {}).get(container)

    def reusable_for(self, uid: PodUID) -> CpuSet:
        return self.reusable if self.reusable_by == uid else frozenset()

    @property
    def assigned(self) -> CpuSet:
        """All CPUs that containers have alone."""
        return frozenset().union(*(cpus for each in self.exclusive.values() for cpus in each.values()))

    def with_container(self, uid: PodUID, container: str, cpus: CpuSet) -> "CpuState":
        """Return the state in which a container has CPUs alone."""
        containers = {**self.exclusive.get(uid, {}), container: cpus}
        return replace(self, shared=self.shared - cpus, exclusive={**self.exclusive, uid: containers})

    def without_container(self, uid: PodUID, container: str) -> "CpuState":
        """Return the state without a container. What another container of its pod has as well stays with that."""
        left = {name: cpus for name, cpus in self.exclusive.get(uid, {}).items() if name != container}
        freed = (self.of(uid, container) or frozenset()) - frozenset().union(*left.values())
        exclusive = {other: each for other, each in self.exclusive.items() if other != uid}
        if left:
            exclusive[uid] = left
        return replace(
            self,
            shared=self.shared | freed,
            exclusive=exclusive,
            reusable=self.reusable - freed if self.reusable_by == uid else self.reusable,
        )


def write_state(state: CpuState, *, policy: str) -> CpuManagerState:
    """Return the content of the file."""
    return CpuManagerState(
        policy_name=policy,
        default_cpu_set=format_cpu_list(state.shared),
        entries={
            uid: {name: format_cpu_list(cpus) for name, cpus in each.items()} for uid, each in state.exclusive.items()
        },
    )


def read_state(file: CpuManagerState, *, policy: str, containers: Mapping[str, ContainerRef]) -> CpuState:
    """Return the state that a file holds; raises CpuStateMismatch.

    `containers` are those that the runtime has, by ID: files of the first version name them so.
    """
    entries = {uid: dict(each) for uid, each in file.entries.items()}
    for container_id, cpus in file.container_entries.items():
        ref = containers.get(container_id)
        if ref is None:
            raise CpuStateMismatch(
                "error migrating v1 checkpoint state to v2 checkpoint state: "
                f"containerID '{container_id}' not found in initial containers list"
            )
        entries.setdefault(ref.uid, {})[ref.name] = cpus
    if file.policy_name != policy:
        raise CpuStateMismatch(
            f'configured policy "{policy}" differs from state checkpoint policy "{file.policy_name}"'
        )
    try:
        uids = {uid: PodUID(uid) for uid in entries}
    except BadPodUID as error:
        raise CpuStateMismatch(f"could not parse entries: {error}") from error
    return CpuState(
        shared=_parse(file.default_cpu_set, f'could not parse default cpu set "{file.default_cpu_set}"'),
        exclusive={
            uids[uid]: {
                name: _parse(cpus, f'could not parse cpuset "{cpus}" for container "{name}" in pod "{uid}"')
                for name, cpus in each.items()
            }
            for uid, each in entries.items()
        },
    )


def check_state(policy: StaticPolicy, state: CpuState) -> CpuState:
    """Return the state to start with, new one if nothing was assigned yet; raises CpuStateMismatch (validateState)."""
    if not state.shared and not state.exclusive:
        return replace(state, shared=policy.managed)
    # With a strict reservation all CPUs may have been given out. Upstream, which allows that, does not start with it.
    if not state.shared and not (policy.options.strict_reservation and state.assigned == policy.managed):
        raise CpuStateMismatch("default cpuset cannot be empty")
    _check_reserved(policy, state)
    for uid, each in state.exclusive.items():
        for name, cpus in each.items():
            if state.shared & cpus:
                raise CpuStateMismatch(
                    f'pod: {uid}, container: {name} cpuset: "{format_cpu_list(cpus)}" overlaps with default cpuset '
                    f'"{format_cpu_list(state.shared)}"'
                )
    if (known := state.shared | state.assigned) != policy.managed:
        raise CpuStateMismatch(
            f'current set of available CPUs "{format_cpu_list(policy.managed)}" doesn\'t match with CPUs in state '
            f'"{format_cpu_list(known)}"'
        )
    return state


def _check_reserved(policy: StaticPolicy, state: CpuState) -> None:
    both, shared = policy.reserved & state.shared, format_cpu_list(state.shared)
    if policy.options.strict_reservation and both:
        raise CpuStateMismatch(
            f'some of strictly reserved cpus: "{format_cpu_list(both)}" are present in defaultCpuSet: "{shared}"'
        )
    if not policy.options.strict_reservation and both != policy.reserved:
        raise CpuStateMismatch(
            f'not all reserved cpus: "{format_cpu_list(policy.reserved)}" are present in defaultCpuSet: "{shared}"'
        )


def _parse(text: str, problem: str) -> CpuSet:
    try:
        return parse_cpu_list(text)
    except MalformedFile as error:
        raise CpuStateMismatch(f"{problem}: {error}") from error
