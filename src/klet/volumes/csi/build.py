"""Builds the CSI plugin."""

from pathlib import Path

from msgspec import Struct

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.host.disk_usage import HostDiskMeter
from klet.model.roles import AccountTokens
from klet.volumes.csi.access import CsiAccess
from klet.volumes.csi.blocks import CsiBlocks
from klet.volumes.csi.expanding import CsiExpander, CsiUsage
from klet.volumes.csi.places import CsiLayout
from klet.volumes.csi.plugin import CsiParts, CsiPlugin
from klet.volumes.csi.publishing import CsiPublisher
from klet.volumes.csi.roles import LimitRefresh
from klet.volumes.csi.staging import CsiStager
from klet.volumes.csi.usage import DriverDiskMeter
from klet.volumes.owner_change import OwnerChanger


class CsiPorts(Struct, frozen=True, kw_only=True):
    """What CSI volumes need from outside; there are none without an API server."""

    access: CsiAccess
    limits: LimitRefresh | None
    """None if nobody follows how many volumes the node can have (gate MutableCSINodeAllocatableCount)."""
    has_tokens_in_secrets: bool = True
    """Gate CSIServiceAccountTokenSecrets."""
    has_health: bool = False
    """Gate CSIVolumeHealth: drivers are asked how their volumes are."""


class CsiSettings(Struct, frozen=True, kw_only=True):
    """Where volumes are, and what is enabled."""

    root: Path
    has_tokens_in_secrets: bool = True
    """Gate CSIServiceAccountTokenSecrets."""


def build_meter(inner: HostDiskMeter, csi: CsiPorts, *, root: Path, threads: Threads, clock: Clock) -> DriverDiskMeter:
    """Build what measures the volumes of drivers, too."""
    usage = CsiUsage(access=csi.access, has_conditions=csi.has_health)
    return DriverDiskMeter(inner=inner, usage=usage, root=root, threads=threads, clock=clock)


def build_csi(
    *,
    access: CsiAccess,
    tokens: AccountTokens,
    limits: LimitRefresh | None,
    owners: OwnerChanger,
    threads: Threads,
    settings: CsiSettings,
) -> CsiPlugin:
    layout = CsiLayout(settings.root)
    parts = CsiParts(
        access=access,
        stager=CsiStager(access=access, layout=layout, threads=threads),
        publisher=CsiPublisher(
            access=access,
            layout=layout,
            tokens=tokens,
            threads=threads,
            owners=owners,
            has_tokens_in_secrets=settings.has_tokens_in_secrets,
        ),
        blocks=CsiBlocks(access=access, layout=layout, threads=threads),
        expander=CsiExpander(access=access),
    )
    return CsiPlugin(parts=parts, layout=layout, limits=limits)
