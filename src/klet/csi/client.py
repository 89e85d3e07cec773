"""The Node service of CSI drivers: one connection and one budget of time for each operation on a volume."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct

from klet.aio.clock import Clock
from klet.csi import calls
from klet.csi.connection import CsiConnection, DriverAddress, open_connection
from klet.csi.errors import CsiRequestInvalid
from klet.metrics import Histogram
from klet.wire import csi_v1_pb2 as pb

BUDGET: Final = timedelta(minutes=2)
"""What the calls of one operation may take together."""
NO_USAGE: Final = "failed to get usage from response. usage is nil"


class NodeCapability(StrEnum):
    """What the Node service of a driver can do, by the protocol's names."""

    STAGE_UNSTAGE_VOLUME = "STAGE_UNSTAGE_VOLUME"
    GET_VOLUME_STATS = "GET_VOLUME_STATS"
    EXPAND_VOLUME = "EXPAND_VOLUME"
    VOLUME_CONDITION = "VOLUME_CONDITION"
    SINGLE_NODE_MULTI_WRITER = "SINGLE_NODE_MULTI_WRITER"
    VOLUME_MOUNT_GROUP = "VOLUME_MOUNT_GROUP"


class CsiNodeInfo(Struct, frozen=True, kw_only=True):
    """What a driver says about the node that it runs on."""

    node_id: str
    max_volumes: int = 0
    topology: Mapping[str, str] | None = None


class UsageNumbers(Struct, frozen=True):
    """What a volume has of bytes, or of inodes."""

    available: int = 0
    total: int = 0
    used: int = 0


class CsiVolumeStats(Struct, frozen=True, kw_only=True):
    """What a driver says about a volume."""

    space: UsageNumbers = UsageNumbers()
    inodes: UsageNumbers = UsageNumbers()
    is_abnormal: bool | None = None
    """None if nobody has asked for its health."""
    condition: str = ""


class CsiConnector:
    """Opens a connection to a driver for each operation; a driver may be another process the next time."""

    def __init__(self, *, durations: Histogram, clock: Clock, budget: timedelta = BUDGET) -> None:
        self._durations = durations
        self._clock = clock
        self._budget = budget

    @asynccontextmanager
    async def open(self, address: DriverAddress) -> AsyncIterator["CsiClient"]:
        async with open_connection(
            address, budget=self._budget, durations=self._durations, clock=self._clock
        ) as connection:
            yield CsiClient(connection=connection)


class CsiClient:
    """The calls of one operation. What fails is a CsiError."""

    def __init__(self, *, connection: CsiConnection) -> None:
        self._connection = connection

    async def node_info(self) -> CsiNodeInfo:
        answer = await self._connection.call(calls.NODE_GET_INFO, pb.NodeGetInfoRequest())
        return CsiNodeInfo(
            node_id=answer.node_id,
            max_volumes=answer.max_volumes_per_node,
            topology=dict(answer.accessible_topology.segments) if answer.HasField("accessible_topology") else None,
        )

    async def capabilities(self) -> frozenset[NodeCapability]:
        """Return what the driver can do. Ask before each decision: a driver may change."""
        answer = await self._connection.call(calls.NODE_GET_CAPABILITIES, pb.NodeGetCapabilitiesRequest())
        kinds = pb.NodeServiceCapability.RPC.Type
        given = {each.rpc.type for each in answer.capabilities}
        return frozenset(each for each in NodeCapability if kinds.Value(each.value) in given)

    async def stage(self, request: pb.NodeStageVolumeRequest) -> None:
        _require("missing volume id", request.volume_id)
        _require("missing staging target path", request.staging_target_path)
        await self._connection.call(calls.NODE_STAGE_VOLUME, request)

    async def unstage(self, volume: str, staging: str) -> None:
        _require("missing volume id", volume)
        _require("missing staging target path", staging)
        request = pb.NodeUnstageVolumeRequest(volume_id=volume, staging_target_path=staging)
        await self._connection.call(calls.NODE_UNSTAGE_VOLUME, request)

    async def publish(self, request: pb.NodePublishVolumeRequest) -> None:
        _require("missing volume id", request.volume_id)
        _require("missing target path", request.target_path)
        await self._connection.call(calls.NODE_PUBLISH_VOLUME, request)

    async def unpublish(self, volume: str, target: str) -> None:
        _require("missing volume id", volume)
        _require("missing target path", target)
        request = pb.NodeUnpublishVolumeRequest(volume_id=volume, target_path=target)
        await self._connection.call(calls.NODE_UNPUBLISH_VOLUME, request)

    async def expand(self, request: pb.NodeExpandVolumeRequest) -> None:
        """Expand a volume; the size that the driver answers is of no use, as upstream."""
        _require("missing volume id", request.volume_id)
        _require("missing volume path", request.volume_path)
        await self._connection.call(calls.NODE_EXPAND_VOLUME, request)

    async def stats(self, volume: str, path: str) -> CsiVolumeStats:
        _require("missing volume id", volume)
        _require("missing target path", path)
        request = pb.NodeGetVolumeStatsRequest(volume_id=volume, volume_path=path)
        answer = await self._connection.call(calls.NODE_GET_VOLUME_STATS, request)
        _require(NO_USAGE, answer.usage)
        units = {usage.unit: UsageNumbers(usage.available, usage.total, usage.used) for usage in answer.usage}
        return CsiVolumeStats(
            space=units.get(pb.VolumeUsage.BYTES, UsageNumbers()),
            inodes=units.get(pb.VolumeUsage.INODES, UsageNumbers()),
            is_abnormal=answer.volume_condition.abnormal,
            condition=answer.volume_condition.message,
        )


def _require(message: str, value: object) -> None:
    if not value:
        raise CsiRequestInvalid(message)
