"""Composes the answer of `/stats/summary` from what was measured (upstream's CRI stats provider). Pure.

A container's numbers come from its cgroup; of one whose cgroup is not known, from the runtime. A pod's come from its
own cgroup, else they are the sums of its containers'.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from klet.api.stats import (
    ContainerStats,
    CPUStats,
    FsStats,
    InterfaceStats,
    IOStats,
    MemoryStats,
    NetworkStats,
    NodeStats,
    PodReference,
    PodStats,
    ProcessStats,
    RlimitStats,
    RuntimeStats,
    Summary,
    SwapStats,
)
from klet.model.pods import PodUID
from klet.model.runtime import ContainerId, ContainerRecord, PodRuntimeStatus, SandboxRecord
from klet.model.stats import GREATEST_LIMIT, CgroupStats, ContainerDisk, InterfaceCounters, PodDisk, StatsSnapshot

T = TypeVar("T")

_DEFAULT_INTERFACE: Final = "eth0"
_WORD: Final = (1 << 64) - 1
_NO_DISK: Final = ContainerDisk()


class RuntimeNumbers(Struct, frozen=True, kw_only=True):
    """What the runtime reports of a container whose cgroup is not known."""

    cpu: CPUStats | None = None
    memory: MemoryStats | None = None
    swap: SwapStats | None = None
    io: IOStats | None = None


class NodeDisks(Struct, frozen=True, kw_only=True):
    """What was measured on disks."""

    fs: FsStats
    runtime: RuntimeStats
    pods: Mapping[PodUID, PodDisk]


class SummaryInputs(Struct, frozen=True, kw_only=True):
    """Everything that a summary is composed of."""

    node_name: str
    now: datetime
    snapshot: StatsSnapshot
    root: CgroupStats
    pods: Mapping[PodUID, PodRuntimeStatus]
    booted_at: datetime | None
    agent_started: datetime
    unknown: Mapping[ContainerId, RuntimeNumbers]
    """Of containers without a known cgroup."""
    disks: NodeDisks | None = None
    """None: only CPU and memory are asked for."""
    rlimit: RlimitStats | None = None
    has_pressure: bool = True
    """The gate KubeletPSI."""


def build_summary(given: SummaryInputs) -> Summary:
    """Compose the whole answer, or the part of it on CPU and memory."""
    root = given.root
    cpu, memory, swap, io = _numbers(root, given)
    node = NodeStats(
        node_name=given.node_name,
        system_containers=tuple(_system_containers(given)),
        start_time=root.created_at,
        cpu=cpu,
        memory=memory,
        swap=swap,
    )
    if given.disks is not None:
        node = replace(
            node,
            start_time=given.booted_at or root.created_at,
            io=io,
            network=_network(root),
            fs=given.disks.fs,
            runtime=given.disks.runtime,
            rlimit=given.rlimit,
        )
    return Summary(node=node, pods=tuple(_pods(given)))


def unknown_containers(snapshot: StatsSnapshot, pods: Mapping[PodUID, PodRuntimeStatus]) -> frozenset[ContainerId]:
    """Return the running containers of which no cgroup is known."""
    running = {record.id for pod in pods.values() for record in pod.running()}
    return frozenset(running - snapshot.by_container().keys())


def choose_sandbox(sandboxes: Sequence[SandboxRecord]) -> SandboxRecord | None:
    """Return the sandbox whose pod is shown: the newest ready one, else the newest."""
    return next((sandbox for sandbox in sandboxes if sandbox.ready), sandboxes[0] if sandboxes else None)


def _pods(given: SummaryInputs) -> Iterable[PodStats]:
    containers, cgroups = given.snapshot.by_container(), given.snapshot.by_pod()
    for uid, pod in given.pods.items():
        sandbox = choose_sandbox(pod.sandboxes)
        running = _newest_by_name(pod.running())
        if sandbox is None or not running:
            continue
        yield _pod(given, pod, sandbox, running, containers, cgroups.get(uid))


def _newest_by_name(records: Iterable[ContainerRecord]) -> tuple[ContainerRecord, ...]:
    """Return one container of each name; the records come newest first."""
    found: dict[str, ContainerRecord] = {}
    for record in records:
        found.setdefault(record.name, record)
    return tuple(found.values())


def _pod(
    given: SummaryInputs,
    pod: PodRuntimeStatus,
    sandbox: SandboxRecord,
    running: Sequence[ContainerRecord],
    cgroups: Mapping[ContainerId, CgroupStats],
    own: CgroupStats | None,
) -> PodStats:
    disk = given.disks.pods.get(pod.uid) if given.disks is not None else None
    stats = tuple(_container(given, record, cgroups.get(record.id), disk) for record in running)
    cpu, memory, swap, io = _sum_cpu(stats), _sum_memory(stats), _sum_swap(stats), None
    if own is not None:
        cpu, memory, swap, io = _numbers(own, given)
    whole = PodStats(
        pod_ref=PodReference(name=pod.name, namespace=pod.namespace, uid=pod.uid),
        start_time=sandbox.created_at,
        containers=stats,
        cpu=cpu,
        memory=memory,
        swap=swap,
    )
    if given.disks is None:
        return whole
    of_sandbox = cgroups.get(ContainerId(sandbox.id))
    counted = [cgroups[record.id].processes.processes for record in running if record.id in cgroups]
    return replace(
        whole,
        io=io,
        network=_network(of_sandbox) if of_sandbox is not None else None,
        volume=disk.volumes if disk is not None else (),
        ephemeral_storage=disk.ephemeral_storage if disk is not None else None,
        process_stats=ProcessStats(process_count=sum(counted)) if counted else None,
    )


def _container(
    given: SummaryInputs, record: ContainerRecord, cgroup: CgroupStats | None, disk: PodDisk | None
) -> ContainerStats:
    if cgroup is not None:
        cpu, memory, swap, io = _numbers(cgroup, given)
    else:
        cpu, memory, swap, io = _of_runtime(given.unknown.get(record.id, RuntimeNumbers()), given.now)
    stats = ContainerStats(name=record.name, start_time=record.created_at, cpu=cpu, memory=memory, swap=swap)
    if given.disks is None:
        return replace(stats, swap=_without_gaps(swap, given.now))
    found = disk.containers.get(record.id, _NO_DISK) if disk is not None else _NO_DISK
    return replace(stats, io=io or IOStats(time=given.now), rootfs=found.rootfs, logs=found.logs)


def _of_runtime(
    numbers: RuntimeNumbers, now: datetime
) -> tuple[CPUStats, MemoryStats, SwapStats | None, IOStats | None]:
    """Return what the runtime reports; what it does not report is zero, as upstream has it."""
    cpu = numbers.cpu or CPUStats(time=now, usage_nano_cores=0, usage_core_nano_seconds=0)
    zero = MemoryStats(time=now, usage_bytes=0, working_set_bytes=0, rss_bytes=0)
    swap = numbers.swap or SwapStats(time=now, swap_available_bytes=0, swap_usage_bytes=0)
    return cpu, numbers.memory or zero, swap, numbers.io


def _system_containers(given: SummaryInputs) -> Iterable[ContainerStats]:
    """Yield the system containers; one whose cgroup is not there is left out."""
    system, cgroups = given.snapshot.system, given.snapshot.by_path()
    for name, path in (
        ("kubelet", system.kubelet),
        ("runtime", system.runtime),
        ("misc", system.misc),
        ("pods", system.pods),
    ):
        found = cgroups.get(path) if path else None
        if found is None:
            continue
        cpu, memory, swap, io = _numbers(found, given)
        started = found.created_at
        if given.booted_at is not None:
            started = max(started, given.booted_at)
        yield ContainerStats(
            name=name,
            start_time=given.agent_started if name == "kubelet" else started,
            cpu=cpu,
            memory=memory,
            swap=swap,
            io=io if given.disks is not None else None,
        )


def _numbers(
    cgroup: CgroupStats, given: SummaryInputs
) -> tuple[CPUStats, MemoryStats, SwapStats | None, IOStats | None]:
    """Return the numbers of a cgroup, by the rules for controllers that it does not have."""
    at, has_pressure = cgroup.sampled_at, given.has_pressure
    cpu = CPUStats(time=at, usage_nano_cores=0, usage_core_nano_seconds=0)
    if cgroup.cpu is not None:
        cpu = CPUStats(
            time=at,
            usage_nano_cores=cgroup.cpu.rate,
            usage_core_nano_seconds=cgroup.cpu.usage,
            psi=cgroup.pressure.cpu if has_pressure else None,
        )
    memory, swap = MemoryStats(time=at, working_set_bytes=0), None
    if (found := cgroup.memory) is not None:
        memory = MemoryStats(
            time=at,
            available_bytes=_left(found.limit, found.working_set),
            usage_bytes=found.usage,
            working_set_bytes=found.working_set,
            rss_bytes=found.rss,
            page_faults=found.page_faults,
            major_page_faults=found.major_page_faults,
            psi=cgroup.pressure.memory if has_pressure else None,
        )
        swap = SwapStats(time=at, swap_available_bytes=_left(found.swap_limit, found.swap), swap_usage_bytes=found.swap)
    io = IOStats(time=at, psi=cgroup.pressure.io) if has_pressure else None
    return cpu, memory, swap, io


def _without_gaps(swap: SwapStats | None, now: datetime) -> SwapStats:
    """Return swap with zeros for what is not known: upstream fills them in where only CPU and memory are asked for."""
    found = swap or SwapStats(time=now)
    return replace(
        found, swap_available_bytes=found.swap_available_bytes or 0, swap_usage_bytes=found.swap_usage_bytes or 0
    )


def _left(limit: int, used: int) -> int | None:
    """Return what is left of a limit, in unsigned 64-bit numbers as upstream computes; None without a limit."""
    return None if limit > GREATEST_LIMIT else (limit - used) & _WORD


def _network(cgroup: CgroupStats) -> NetworkStats | None:
    if cgroup.network is None:
        return None
    interfaces = tuple(_interface(each) for each in cgroup.network)
    default = next((each for each in interfaces if each.name == _DEFAULT_INTERFACE), InterfaceStats(name=""))
    return NetworkStats(
        time=cgroup.sampled_at,
        name=default.name,
        rx_bytes=default.rx_bytes,
        rx_errors=default.rx_errors,
        tx_bytes=default.tx_bytes,
        tx_errors=default.tx_errors,
        interfaces=interfaces,
    )


def _interface(counters: InterfaceCounters) -> InterfaceStats:
    return InterfaceStats(
        name=counters.name,
        rx_bytes=counters.rx_bytes,
        rx_errors=counters.rx_errors,
        tx_bytes=counters.tx_bytes,
        tx_errors=counters.tx_errors,
    )


def _sum_cpu(containers: Sequence[ContainerStats]) -> CPUStats | None:
    parts = [each.cpu for each in containers if each.cpu is not None]
    if not parts:
        return None
    return CPUStats(
        time=max(part.time for part in parts),
        usage_nano_cores=_sum(parts, lambda part: part.usage_nano_cores),
        usage_core_nano_seconds=_sum(parts, lambda part: part.usage_core_nano_seconds),
    )


def _sum_memory(containers: Sequence[ContainerStats]) -> MemoryStats | None:
    parts = [each.memory for each in containers if each.memory is not None]
    if not parts:
        return None
    return MemoryStats(
        time=max(part.time for part in parts),
        available_bytes=_sum(parts, lambda part: part.available_bytes),
        usage_bytes=_sum(parts, lambda part: part.usage_bytes),
        working_set_bytes=_sum(parts, lambda part: part.working_set_bytes),
        rss_bytes=_sum(parts, lambda part: part.rss_bytes),
        page_faults=_sum(parts, lambda part: part.page_faults),
        major_page_faults=_sum(parts, lambda part: part.major_page_faults),
    )


def _sum_swap(containers: Sequence[ContainerStats]) -> SwapStats | None:
    parts = [each.swap for each in containers if each.swap is not None]
    if not parts:
        return None
    return SwapStats(
        time=max(part.time for part in parts),
        swap_available_bytes=_sum(parts, lambda part: part.swap_available_bytes),
        swap_usage_bytes=_sum(parts, lambda part: part.swap_usage_bytes),
    )


def _sum(parts: Sequence[T], field: Callable[[T], int | None]) -> int | None:
    """Return the sum of what is known; None if nothing is."""
    known = [number for part in parts if (number := field(part)) is not None]
    return sum(known) if known else None
