"""Builds what measures the disks of the node, its images and its pods, and what composes summaries of all usage."""

from datetime import timedelta

from msgspec import Struct

from klet.app.boards import Boards
from klet.app.ports import Ports
from klet.app.settings import AgentSettings
from klet.model.roles import Part
from klet.model.volumes import MeasurableVolumes
from klet.stats.collector import StatsCollector
from klet.stats.disk import DiskSettings, NodeDisk
from klet.stats.disk_metrics import register_volume_durations
from klet.stats.disk_walker import DiskWalker
from klet.stats.provider import SummaryProvider, SummarySettings
from klet.stats.volume_health import VolumeHealth


class MeasuredDisks(Struct, frozen=True):
    """What is on disks, and the parts that measure it."""

    disk: NodeDisk
    parts: tuple[Part, ...]


def build_disk_stats(
    ports: Ports, settings: AgentSettings, boards: Boards, volumes: MeasurableVolumes
) -> MeasuredDisks:
    walker = DiskWalker(meter=ports.disk, durations=register_volume_durations(boards.metrics), clock=ports.clock)
    period = settings.volume_stats_period
    disk = NodeDisk(
        runtime=ports.runtime,
        images=ports.images,
        pods=boards.cache,
        volumes=volumes,
        walker=walker,
        meter=ports.disk,
        settings=DiskSettings(root=settings.root, volume_period=period),
        clock=ports.clock,
    )
    if period <= timedelta(0) or not settings.gates.enabled("CSIVolumeHealth"):
        return MeasuredDisks(disk, (walker,))
    health = VolumeHealth(disk=disk, pods=boards.pods, period=period, recorder=ports.recorder, clock=ports.clock)
    return MeasuredDisks(disk, (walker, health))


def build_summaries(
    ports: Ports, settings: AgentSettings, boards: Boards, stats: StatsCollector, disk: NodeDisk
) -> SummaryProvider:
    return SummaryProvider(
        reader=stats,
        disk=disk,
        seen=boards.cache,
        runtime=ports.runtime,
        limits=ports.usage.process_limits,
        settings=SummarySettings(
            node_name=settings.node_name,
            booted_at=lambda: ports.machine.info().booted_at,
            agent_started=ports.clock.now(),
            has_pressure=settings.stats.has_pressure,
        ),
        clock=ports.clock,
    )
