"""What volumes of CSI drivers take: their drivers are asked (upstream: csi_metrics.go)."""

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.csi.client import CsiVolumeStats
from klet.errors import KletError
from klet.host.disk import FilesystemUsage
from klet.host.disk_usage import DiskReading, DiskTarget, DiskTargetKind, DiskUsage, HostDiskMeter, NotMeasured
from klet.model.volumes import UsageSource
from klet.volumes.csi import directories
from klet.volumes.csi.expanding import CsiUsage
from klet.volumes.csi.places import Place


class DriverDiskMeter:
    """Asks drivers what their volumes take, and measures everything else on the machine."""

    def __init__(self, *, inner: HostDiskMeter, usage: CsiUsage, root: Path, threads: Threads, clock: Clock) -> None:
        self._inner = inner
        self._usage = usage
        self._pods = root / "pods"
        self._threads = threads
        self._clock = clock

    async def filesystem(self, path: Path) -> FilesystemUsage:
        return await self._inner.filesystem(path)

    async def measure(
        self, targets: Iterable[DiskTarget], *, most: int | None = None
    ) -> Mapping[DiskTarget, DiskReading]:
        wanted = tuple(targets)
        others = [target for target in wanted if target.kind is not DiskTargetKind.DRIVER]
        found = dict(await self._inner.measure(others, most=most)) if others else {}
        for target in wanted:
            if target.kind is DiskTargetKind.DRIVER:
                found[target] = await self._ask(target)
        return found

    async def _ask(self, target: DiskTarget) -> DiskReading:
        began = self._clock.monotonic()
        try:
            volume = Place(self._pods, PurePath(target.path).relative_to(self._pods).parts).parent
            data = await self._threads.run(directories.read_data, volume)
            if data is None:
                return NotMeasured(reason="it is not published", is_missing=True)
            stats = await self._usage.read(data.driver_name, data.volume_handle, target.path)
        except (KletError, ValueError) as error:
            return NotMeasured(reason=str(error))
        if stats is None:
            return NotMeasured(reason="the CSI driver does not count", is_missing=True)
        return _as_usage(stats, data.driver_name, self._clock.monotonic() - began)


def _as_usage(stats: CsiVolumeStats, driver: str, duration: float) -> DiskUsage:
    space, inodes = stats.space, stats.inodes
    return DiskUsage(
        used=space.used,
        inodes=inodes.used,
        filesystem=FilesystemUsage(
            device=0,
            capacity=space.total,
            available=space.available,
            used=space.used,
            inodes=inodes.total,
            inodes_free=inodes.available,
        ),
        source=UsageSource.DRIVER,
        duration=duration,
        driver=driver,
        is_abnormal=stats.is_abnormal,
        condition=stats.condition,
    )
