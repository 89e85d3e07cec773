"""Has drivers expand CSI volumes, and asks them what volumes take (upstream: expander.go, csi_metrics.go)."""

from typing import Final

from klet.csi.client import CsiVolumeStats, NodeCapability
from klet.csi.errors import CsiCallFailed, CsiError
from klet.volumes.csi.access import CsiAccess
from klet.volumes.csi.requests import Given, expand_request
from klet.volumes.csi.source import persistent_source
from klet.volumes.errors import TransientFailure
from klet.volumes.plugins.base import ExpandRequest, Expansion, ExpansionOutcome
from klet.wire.codes import Code

_INFEASIBLE: Final = frozenset({Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE, Code.NOT_FOUND})


class CsiExpander:
    """Expands volumes."""

    def __init__(self, *, access: CsiAccess) -> None:
        self._access = access

    async def expand(self, request: ExpandRequest, *, staging: str) -> Expansion:
        source = persistent_source(request.spec)
        failure = "Expander.NodeExpand failed to get CSI client"
        async with self._access.open(source.driver, failure=failure, is_migrated=source.is_migrated) as client:
            try:
                capabilities = await client.capabilities()
            except CsiError as error:
                return _failed(f"Expander.NodeExpand failed to check if node supports expansion : {error}")
            if NodeCapability.EXPAND_VOLUME not in capabilities:
                unsupported = f"NodeExpand is not supported by the CSI driver {source.driver}"
                return Expansion(ExpansionOutcome.NOT_SUPPORTED, unsupported)
            try:
                failure = "expander.NodeExpand failed to get NodeExpandSecretRef {}"
                secrets = await self._access.secret(source.expand_secret, failure=failure)
            except TransientFailure as error:
                return _failed(str(error))  # upstream: a plain error, which counts as final
            given = Given(capabilities=capabilities, secrets=secrets)
            is_block = request.spec.is_block
            wanted = expand_request(
                source,
                given,
                path=request.device_path if is_block else request.mount_path,
                staging=staging,
                size=request.new_size.value(),
                is_block=is_block,
            )
            try:
                await client.expand(wanted)
            except CsiError as error:
                return judge_expansion(error)
        return Expansion(ExpansionOutcome.FINISHED)


def judge_expansion(error: CsiError) -> Expansion:
    """Return what a failure of NodeExpandVolume means. Upstream counts timeouts as final here."""
    code = error.code if isinstance(error, CsiCallFailed) else None
    if code is Code.FAILED_PRECONDITION:
        return Expansion(ExpansionOutcome.IN_USE, f"Expander.NodeExpand failed to expand the volume : {error}")
    if code in _INFEASIBLE:
        return Expansion(ExpansionOutcome.INFEASIBLE, f"Expander.NodeExpand failed to expand the volume {error}")
    return _failed(f"Expander.NodeExpand failed to expand the volume : {error}")


class CsiUsage:
    """Asks drivers what volumes take, and how they are."""

    def __init__(self, *, access: CsiAccess, has_conditions: bool) -> None:
        self._access = access
        self._has_conditions = has_conditions

    async def read(self, driver: str, handle: str, path: str) -> CsiVolumeStats | None:
        """Return what a driver says of a volume at a path; None for a driver that does not count."""
        async with self._access.open(driver, failure="failed to get CSI client") as client:
            capabilities = await client.capabilities()
            if NodeCapability.GET_VOLUME_STATS not in capabilities:
                return None
            stats = await client.stats(handle, path)
        if self._has_conditions and NodeCapability.VOLUME_CONDITION in capabilities:
            return stats
        return CsiVolumeStats(space=stats.space, inodes=stats.inodes)


def _failed(error: str) -> Expansion:
    return Expansion(ExpansionOutcome.FAILED, error)
