"""Which failures keep a summary from being sent, and with which words."""

from datetime import UTC, datetime

import pytest

from klet.api.stats import CPUStats, FsStats, MemoryStats, PSIData, PSIStats, RuntimeStats, SwapStats
from klet.errors import KletError
from klet.model.stats import CgroupIdentity, CgroupLevel, CgroupStats, ProcessLimits, StatsSnapshot
from klet.stats.provider import SummaryError, SummaryProvider, SummarySettings, read_numbers
from klet.stats.summary import RuntimeNumbers
from klet.testing.clock import ManualClock
from klet.wire import cri_v1_pb2 as pb

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ROOT = CgroupStats(cgroup=CgroupIdentity(path="/", level=CgroupLevel.ROOT), sampled_at=NOW, created_at=NOW)
FS = FsStats(time=NOW)


class Machine:
    """A node of which one part cannot be read."""

    def __init__(self, broken: str = "") -> None:
        self._broken = broken
        self.cgroups = (ROOT,)

    def _check(self, part: str) -> None:
        if part == self._broken:
            raise KletError("it is broken")

    async def snapshot(self, *, max_age=None):
        del max_age
        self._check("snapshot")
        return StatsSnapshot(taken_at=NOW, cgroups=self.cgroups)

    async def node_fs(self):
        self._check("node_fs")
        return FS

    async def image_fs(self):
        self._check("image_fs")
        return RuntimeStats(image_fs=FS, container_fs=FS)

    async def disk_pods(self):
        self._check("pods")
        return {}

    async def limits(self):
        self._check("limits")
        return ProcessLimits(maximum=2, current=1)


class Disk:
    def __init__(self, machine: Machine) -> None:
        self.node_fs, self.image_fs, self.pods = machine.node_fs, machine.image_fs, machine.disk_pods


class NoPods:
    def pods(self):
        return {}


def provider(machine):
    return SummaryProvider(
        reader=machine,
        disk=Disk(machine),
        seen=NoPods(),
        runtime=None,
        limits=machine.limits,
        settings=SummarySettings(node_name="node", booted_at=lambda: None, agent_started=NOW),
        clock=ManualClock(),
    )


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("snapshot", "failed to get root cgroup stats: it is broken"),
        ("node_fs", "failed to get rootFs stats: it is broken"),
        ("image_fs", "failed to get imageFs stats: it is broken"),
        ("pods", "failed to list pod stats: it is broken"),
        ("limits", "failed to get rlimit stats: it is broken"),
    ],
)
async def test_one_part_that_fails_fails_the_whole(broken, message):
    with pytest.raises(SummaryError) as raised:
        await provider(Machine(broken)).summary()
    assert str(raised.value) == message


@pytest.mark.parametrize("broken", ["node_fs", "image_fs", "pods", "limits"])
async def test_cpu_and_memory_alone_need_no_disk(broken):
    assert (await provider(Machine(broken)).summary(only_cpu_and_memory=True)).pods == ()


async def test_without_the_root_there_is_nothing_to_show():
    machine = Machine()
    machine.cgroups = ()
    with pytest.raises(SummaryError, match="failed to get root cgroup stats"):
        await provider(machine).summary()


def test_what_the_runtime_reports_is_read():
    at = int(NOW.timestamp() * 1_000_000_000)
    stats = pb.ContainerStats(
        cpu=pb.CpuUsage(
            timestamp=at,
            usage_core_nano_seconds=pb.UInt64Value(value=7),
            psi=pb.PsiStats(Full=pb.PsiData(Total=1), Some=pb.PsiData(Total=2, Avg10=0.5)),
        ),
        memory=pb.MemoryUsage(timestamp=at, working_set_bytes=pb.UInt64Value(value=8)),
        swap=pb.SwapUsage(timestamp=at, swap_usage_bytes=pb.UInt64Value(value=9)),
    )
    assert read_numbers(stats) == RuntimeNumbers(
        cpu=CPUStats(
            time=NOW,
            usage_core_nano_seconds=7,
            psi=PSIStats(full=PSIData(total=1), some=PSIData(total=2, avg10=0.5)),
        ),
        memory=MemoryStats(time=NOW, working_set_bytes=8),
        swap=SwapStats(time=NOW, swap_usage_bytes=9),
    )
    assert read_numbers(pb.ContainerStats()) == RuntimeNumbers()
