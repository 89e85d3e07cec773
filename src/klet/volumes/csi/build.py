"""Builds the CSI plugin."""

from pathlib import Path

from msgspec import Struct

from klet.aio.threads import Threads
from klet.volumes.csi.access import CsiAccess
from klet.volumes.csi.blocks import CsiBlocks
from klet.volumes.csi.expanding import CsiExpander
from klet.volumes.csi.places import CsiLayout
from klet.volumes.csi.plugin import CsiParts, CsiPlugin
from klet.volumes.csi.publishing import CsiPublisher
from klet.volumes.csi.roles import AccountTokens, LimitRefresh
from klet.volumes.csi.staging import CsiStager


class CsiPorts(Struct, frozen=True, kw_only=True):
    """What CSI volumes need from outside; there are none without an API server."""

    access: CsiAccess
    limits: LimitRefresh | None
    """None if nobody follows how many volumes the node can have (gate MutableCSINodeAllocatableCount)."""
    has_tokens_in_secrets: bool = True
    """Gate CSIServiceAccountTokenSecrets."""


class CsiSettings(Struct, frozen=True, kw_only=True):
    """Where volumes are, and what is enabled."""

    root: Path
    has_tokens_in_secrets: bool = True
    """Gate CSIServiceAccountTokenSecrets."""


def build_csi(
    *, access: CsiAccess, tokens: AccountTokens, limits: LimitRefresh | None, threads: Threads, settings: CsiSettings
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
            has_tokens_in_secrets=settings.has_tokens_in_secrets,
        ),
        blocks=CsiBlocks(access=access, layout=layout, threads=threads),
        expander=CsiExpander(access=access),
    )
    return CsiPlugin(parts=parts, layout=layout, limits=limits)
