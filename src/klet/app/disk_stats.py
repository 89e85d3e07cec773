"""Builds what measures the disks of the node, its images and its pods."""

from datetime import timedelta

from msgspec import Struct

from klet.app.boards import Boards
from klet.app.ports import Ports
from klet.app.settings import AgentSettings
from klet.model.roles import Part
from klet.model.volumes import MeasurableVolumes
from klet.stats.disk import DiskSettings, NodeDisk
from klet.stats.disk_metrics import register_volume_durations
from klet.stats.disk_walker import DiskWalker
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
