"""Answers `/stats/summary`: gets everything that it is composed of (upstream's SummaryProvider)."""

from collections.abc import Awaitable, Callable, Collection
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.stats import CPUStats, IOStats, MemoryStats, PSIData, PSIStats, RlimitStats, Summary, SwapStats
from klet.errors import KletError
from klet.model.roles import PodsInRuntime
from klet.model.runtime import ContainerId
from klet.model.stats import DiskStats, ProcessLimits, StatsReader
from klet.stats.summary import NodeDisks, RuntimeNumbers, SummaryInputs, build_summary, unknown_containers
from klet.wire import cri_v1_pb2 as pb

T = TypeVar("T")


class SummaryError(KletError):
    """A part of the summary that could not be read, without which upstream sends none."""


class ContainerNumbers(Protocol):
    """The part of the runtime that reports what containers use."""

    async def list_container_stats(self, request: pb.ListContainerStatsRequest) -> pb.ListContainerStatsResponse: ...


class SummarySettings(Struct, frozen=True, kw_only=True):
    """What is said of the node, and how."""

    node_name: str
    booted_at: Callable[[], datetime | None]
    agent_started: datetime
    has_pressure: bool = True


class SummaryProvider:
    """Composes summaries of the node and its pods."""

    def __init__(
        self,
        *,
        reader: StatsReader,
        disk: DiskStats,
        seen: PodsInRuntime,
        runtime: ContainerNumbers,
        limits: Callable[[], Awaitable[ProcessLimits]],
        settings: SummarySettings,
        clock: Clock,
    ) -> None:
        self._reader = reader
        self._disk = disk
        self._seen = seen
        self._runtime = runtime
        self._limits = limits
        self._settings = settings
        self._clock = clock

    async def summary(self, *, only_cpu_and_memory: bool = False) -> Summary:
        """Return it. Raises SummaryError with upstream's words for what could not be read."""
        snapshot = await _of("root cgroup", self._reader.snapshot())
        if snapshot.root is None:
            raise SummaryError('failed to get root cgroup stats: failed to get cgroup stats for "/"')
        pods = self._seen.pods()
        disks, rlimit = None, None
        if not only_cpu_and_memory:
            disks = NodeDisks(
                fs=await _of("rootFs", self._disk.node_fs()),
                runtime=await _of("imageFs", self._disk.image_fs()),
                pods=await _of("pod", self._disk.pods()),
            )
            limits = await _of("rlimit", self._limits())
            rlimit = RlimitStats(time=self._clock.now(), maxpid=limits.maximum, curproc=limits.current)
        unknown = unknown_containers(snapshot, pods)
        return build_summary(
            SummaryInputs(
                node_name=self._settings.node_name,
                now=self._clock.now(),
                snapshot=snapshot,
                root=snapshot.root,
                pods=pods,
                booted_at=self._settings.booted_at(),
                agent_started=self._settings.agent_started,
                unknown=await _of("pod", self._ask_runtime(unknown)) if unknown else {},
                disks=disks,
                rlimit=rlimit,
                has_pressure=self._settings.has_pressure,
            )
        )

    async def _ask_runtime(self, wanted: Collection[ContainerId]) -> dict[ContainerId, RuntimeNumbers]:
        """Return what the runtime reports of containers whose cgroups are not known, as those of a virtual machine."""
        answer = await self._runtime.list_container_stats(pb.ListContainerStatsRequest())
        return {
            id_: read_numbers(stats) for stats in answer.stats if (id_ := ContainerId(stats.attributes.id)) in wanted
        }


async def _of(part: str, reading: Awaitable[T]) -> T:
    try:
        return await reading
    except KletError as error:
        verb = "list" if part == "pod" else "get"
        raise SummaryError(f"failed to {verb} {part} stats: {error}") from error


def read_numbers(stats: pb.ContainerStats) -> RuntimeNumbers:
    """Read the runtime's numbers of a container."""
    cpu, memory, swap, io = None, None, None, None
    if stats.HasField("cpu"):
        cpu = CPUStats(
            time=_instant(stats.cpu.timestamp),
            usage_nano_cores=_number(stats.cpu, "usage_nano_cores"),
            usage_core_nano_seconds=_number(stats.cpu, "usage_core_nano_seconds"),
            psi=_pressure(stats.cpu),
        )
    if stats.HasField("memory"):
        memory = MemoryStats(
            time=_instant(stats.memory.timestamp),
            available_bytes=_number(stats.memory, "available_bytes"),
            usage_bytes=_number(stats.memory, "usage_bytes"),
            working_set_bytes=_number(stats.memory, "working_set_bytes"),
            rss_bytes=_number(stats.memory, "rss_bytes"),
            page_faults=_number(stats.memory, "page_faults"),
            major_page_faults=_number(stats.memory, "major_page_faults"),
            psi=_pressure(stats.memory),
        )
    if stats.HasField("swap"):
        swap = SwapStats(
            time=_instant(stats.swap.timestamp),
            swap_available_bytes=_number(stats.swap, "swap_available_bytes"),
            swap_usage_bytes=_number(stats.swap, "swap_usage_bytes"),
        )
    if stats.HasField("io"):
        io = IOStats(time=_instant(stats.io.timestamp), psi=_pressure(stats.io))
    return RuntimeNumbers(cpu=cpu, memory=memory, swap=swap, io=io)


def _number(usage: pb.CpuUsage | pb.MemoryUsage | pb.SwapUsage, name: str) -> int | None:
    value: pb.UInt64Value = getattr(usage, name)
    return value.value if usage.HasField(name) else None


def _pressure(usage: pb.CpuUsage | pb.MemoryUsage | pb.IoUsage) -> PSIStats | None:
    if not usage.HasField("psi"):
        return None
    return PSIStats(full=_stalls(usage.psi.Full), some=_stalls(usage.psi.Some))


def _stalls(data: pb.PsiData) -> PSIData:
    return PSIData(total=data.Total, avg10=data.Avg10, avg60=data.Avg60, avg300=data.Avg300)


def _instant(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds / 1_000_000_000, UTC)
