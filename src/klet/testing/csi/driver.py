"""The Node service of the test driver: strict about the order of calls, idempotent, and with a memory.

It refuses what a driver may refuse: to publish what is not staged, to unstage what is still published.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc
from google.protobuf.message import Message
from grpc import aio
from msgspec import Struct

from klet.csi.calls import IDENTITY_SERVICE, NODE_SERVICE
from klet.csi.client import NodeCapability
from klet.testing.csi.backing import VolumeBacking
from klet.testing.csi.faults import FaultPlan, Mishap, Moment
from klet.testing.csi.memory import DriverMemory
from klet.wire import csi_v1_pb2 as pb
from klet.wire.codes import Code
from klet.wire.methods import methods_of, service_handler

NAME: Final = "csi.klet.test"
NODE_ID: Final = "node-id"
TOTAL: Final = 1_000_000
_QUESTIONS: Final = frozenset({"GetPluginInfo", "Probe", "NodeGetCapabilities", "NodeGetInfo", "NodeGetVolumeStats"})
_ANSWERS: Final = {name: method.response for name, method in methods_of(NODE_SERVICE).items()}
_Context: TypeAlias = "aio.ServicerContext[Any, Any]"


class DriverCall(Struct, frozen=True):
    """A call that the driver has seen."""

    rpc: str
    request: Message


class _Refused(Exception):
    """An answer with an error code."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class CsiTestDriver:
    """A driver whose capabilities, limits and faults the test chooses; `on_death` ends its process or its server."""

    def __init__(
        self,
        *,
        backing: VolumeBacking,
        memory: DriverMemory,
        on_death: Callable[[], Awaitable[None]],
        name: str = NAME,
        capabilities: frozenset[NodeCapability] = frozenset({NodeCapability.STAGE_UNSTAGE_VOLUME}),
    ) -> None:
        self.name = name
        self.capabilities = capabilities
        self.node_info = pb.NodeGetInfoResponse(node_id=NODE_ID)
        self.condition = pb.VolumeCondition()
        self.faults = FaultPlan()
        self.calls: list[DriverCall] = []
        self.memory = memory
        self._backing = backing
        self._on_death = on_death
        self._seen = asyncio.Condition()

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        node: dict[str, Callable[[Any], Message]] = {
            "NodeGetInfo": self._get_info,
            "NodeGetCapabilities": self._get_capabilities,
            "NodeStageVolume": self._stage,
            "NodeUnstageVolume": self._unstage,
            "NodePublishVolume": self._publish,
            "NodeUnpublishVolume": self._unpublish,
            "NodeGetVolumeStats": self._stats,
            "NodeExpandVolume": self._expand,
        }
        identity: dict[str, Callable[[Any], Message]] = {"GetPluginInfo": self._plugin_info, "Probe": self._probe}
        return (
            service_handler(NODE_SERVICE, {name: self._served(name, act) for name, act in node.items()}),
            service_handler(IDENTITY_SERVICE, {name: self._served(name, act) for name, act in identity.items()}),
        )

    def content(self, volume: str) -> Path:
        """Return the directory that is a volume, to look at and to write to."""
        return self._backing.content(volume)

    def requests(self, rpc: str) -> list[Any]:
        """Return the requests of one kind, in their order."""
        return [call.request for call in self.calls if call.rpc == rpc]

    def order(self) -> list[str]:
        """Return what was done to volumes, without what was only asked."""
        return [call.rpc for call in self.calls if call.rpc not in _QUESTIONS]

    async def wait_for(self, is_seen: Callable[[], bool]) -> None:
        """Wait until something holds that calls can change."""
        async with self._seen:
            await self._seen.wait_for(is_seen)

    def _served(self, rpc: str, act: Callable[[Any], Message]) -> Callable[[Message, _Context], Awaitable[Message]]:
        async def answer(request: Message, context: _Context) -> Message:
            await self._note(DriverCall(rpc, request))
            try:
                if await self._suffer(rpc, Moment.BEFORE):
                    return _ANSWERS[rpc]()
                if fault := self.faults.take(rpc, Moment.PARTIAL):
                    self._begin(request)
                    self.faults.reached.set()
                    assert isinstance(fault.does, Code)
                    raise _Refused(fault.does, fault.message)
                done = act(request)
                self.memory.save()
                await self._suffer(rpc, Moment.AFTER)
            except _Refused as refused:
                await context.abort(grpc.StatusCode[refused.code.name], str(refused))
            finally:
                await self._note(None)
            return done

        return answer

    async def _note(self, call: DriverCall | None) -> None:
        if call is not None:
            self.calls.append(call)
            if call.rpc not in _QUESTIONS:
                self.memory.calls.append(call.rpc)
        async with self._seen:
            self._seen.notify_all()

    async def _suffer(self, rpc: str, at: Moment) -> bool:
        """Have a fault happen, if one is planned; return whether to answer as if all was done."""
        fault = self.faults.take(rpc, at)
        if fault is None:
            return False
        if fault.does is Mishap.HANG:
            await self.faults.hang()
            return False
        self.faults.reached.set()
        if fault.does is Mishap.LIE:
            return True
        if fault.does is Mishap.DIE:
            await self._on_death()
            raise _Refused(Code.UNAVAILABLE, "the driver died")
        raise _Refused(fault.does, fault.message)

    def _begin(self, request: Message) -> None:
        """Do the first half of a publish or a stage: the directory is there, and nothing is mounted on it."""
        if isinstance(request, pb.NodePublishVolumeRequest) and request.volume_capability.HasField("mount"):
            Path(request.target_path).mkdir(exist_ok=True)

    def _get_info(self, _request: pb.NodeGetInfoRequest) -> pb.NodeGetInfoResponse:
        return self.node_info

    def _get_capabilities(self, _request: pb.NodeGetCapabilitiesRequest) -> pb.NodeGetCapabilitiesResponse:
        kinds = pb.NodeServiceCapability.RPC
        return pb.NodeGetCapabilitiesResponse(
            capabilities=[pb.NodeServiceCapability(rpc=kinds(type=each.value)) for each in sorted(self.capabilities)]
        )

    def _plugin_info(self, _request: pb.GetPluginInfoRequest) -> pb.GetPluginInfoResponse:
        return pb.GetPluginInfoResponse(name=self.name, vendor_version="1.0.0")

    def _probe(self, _request: pb.ProbeRequest) -> pb.ProbeResponse:
        return pb.ProbeResponse()

    def _stage(self, request: pb.NodeStageVolumeRequest) -> pb.NodeStageVolumeResponse:
        _require(request, "volume_id", "staging_target_path", "volume_capability")
        self._require_capability(NodeCapability.STAGE_UNSTAGE_VOLUME)
        path = request.staging_target_path
        if not Path(path).is_dir():
            raise _Refused(Code.INVALID_ARGUMENT, f"staging path {path} is no directory")
        if self.memory.staged.get(request.volume_id, path) != path:
            raise _Refused(Code.ALREADY_EXISTS, f"{request.volume_id} is staged elsewhere")
        if request.volume_capability.HasField("mount"):
            self._backing.cover(request.volume_id, Path(path))
        self.memory.staged[request.volume_id] = path
        return pb.NodeStageVolumeResponse()

    def _unstage(self, request: pb.NodeUnstageVolumeRequest) -> pb.NodeUnstageVolumeResponse:
        _require(request, "volume_id", "staging_target_path")
        self._require_capability(NodeCapability.STAGE_UNSTAGE_VOLUME)
        if request.volume_id in self.memory.published.values():
            raise _Refused(Code.FAILED_PRECONDITION, f"{request.volume_id} is still published")
        self._backing.uncover(Path(request.staging_target_path))
        self.memory.staged.pop(request.volume_id, None)
        return pb.NodeUnstageVolumeResponse()

    def _publish(self, request: pb.NodePublishVolumeRequest) -> pb.NodePublishVolumeResponse:
        _require(request, "volume_id", "target_path", "volume_capability")
        target = Path(request.target_path)
        staged = self.memory.staged.get(request.volume_id)
        is_inline = request.volume_id.startswith("csi-") and not request.staging_target_path
        needs_stage = NodeCapability.STAGE_UNSTAGE_VOLUME in self.capabilities and not is_inline
        if needs_stage and (staged is None or staged != request.staging_target_path):
            raise _Refused(Code.FAILED_PRECONDITION, f"{request.volume_id} is not staged there")
        if not target.parent.is_dir():
            raise _Refused(Code.INVALID_ARGUMENT, f"{target.parent} is no directory")
        if request.volume_capability.HasField("block"):
            self._backing.show_device(request.volume_id, target)
        else:
            self._backing.show(request.volume_id, target, read_only=request.readonly)
        self.memory.published[request.target_path] = request.volume_id
        return pb.NodePublishVolumeResponse()

    def _unpublish(self, request: pb.NodeUnpublishVolumeRequest) -> pb.NodeUnpublishVolumeResponse:
        _require(request, "volume_id", "target_path")
        target = Path(request.target_path)
        if target.is_dir():
            self._backing.hide(target)
        else:
            self._backing.hide_device(request.volume_id, target)
        self.memory.published.pop(request.target_path, None)
        return pb.NodeUnpublishVolumeResponse()

    def _stats(self, request: pb.NodeGetVolumeStatsRequest) -> pb.NodeGetVolumeStatsResponse:
        _require(request, "volume_id", "volume_path")
        self._require_capability(NodeCapability.GET_VOLUME_STATS)
        if request.volume_path not in self.memory.published:
            raise _Refused(Code.NOT_FOUND, f"{request.volume_id} is not published at {request.volume_path}")
        used = len(list(self.content(request.volume_id).iterdir()))
        total = self.memory.sizes.get(request.volume_id, TOTAL)
        return pb.NodeGetVolumeStatsResponse(
            usage=[
                pb.VolumeUsage(unit=pb.VolumeUsage.BYTES, total=total, used=used, available=total - used),
                pb.VolumeUsage(unit=pb.VolumeUsage.INODES, total=100, used=used, available=100 - used),
            ],
            volume_condition=self.condition,
        )

    def _expand(self, request: pb.NodeExpandVolumeRequest) -> pb.NodeExpandVolumeResponse:
        _require(request, "volume_id", "volume_path")
        self._require_capability(NodeCapability.EXPAND_VOLUME)
        size = request.capacity_range.required_bytes
        self._backing.resize(request.volume_id, size)
        self.memory.sizes[request.volume_id] = size
        return pb.NodeExpandVolumeResponse(capacity_bytes=size)

    def _require_capability(self, capability: NodeCapability) -> None:
        if capability not in self.capabilities:
            raise _Refused(Code.UNIMPLEMENTED, f"no capability {capability}")


def _require(request: Message, *fields: str) -> None:
    for name in fields:
        if not (request.HasField(name) if name == "volume_capability" else getattr(request, name)):
            raise _Refused(Code.INVALID_ARGUMENT, f"{name} is missing")
