"""The fake runtime as a gRPC server on a Unix socket: the CRI's two services and containerd's events.

For component tests: the wire is real, the time is the test's (a ManualClock) or the machine's.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from grpc import aio

from klet.aio.clock import Clock
from klet.cri.calls import IMAGE_SERVICE, RUNTIME_SERVICE
from klet.testing.fake_runtime.calls import RpcFailure
from klet.testing.fake_runtime.events import BadFilter, parse_filters
from klet.testing.fake_runtime.machine import FakeRuntime
from klet.testing.fake_runtime.pump import Pump, pumping
from klet.wire import containerd_events_service_pb2 as events_service
from klet.wire import cri_v1_pb2 as pb
from klet.wire.containerd_types_pb2 import Envelope
from klet.wire.methods import methods_of, service_handler

EVENTS_SERVICE = events_service.DESCRIPTOR.services_by_name["Events"]

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"


@asynccontextmanager
async def serve_cri(runtime: FakeRuntime, *, clock: Clock, socket: Path) -> AsyncIterator[str]:
    """Serve on the socket as long as the context lasts; gives the endpoint."""
    server = aio.server()
    async with pumping(runtime, clock) as pump:
        server.add_generic_rpc_handlers(CriServices(runtime=runtime, pump=pump).handlers())
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        try:
            yield f"unix://{socket}"
        finally:
            runtime.disconnect()
            await server.stop(grace=None)


class CriServices:
    """The behaviours of all calls."""

    def __init__(self, *, runtime: FakeRuntime, pump: Pump) -> None:
        self._runtime = runtime
        self._pump = pump

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        runtime: dict[str, Callable[..., Any]] = {
            name: self._unary(name)
            for name, method in methods_of(RUNTIME_SERVICE).items()
            if not method.streams_responses
        }
        images = {name: self._unary(name) for name in methods_of(IMAGE_SERVICE)}
        return (
            service_handler(RUNTIME_SERVICE, {**runtime, "GetContainerEvents": self._container_events}),
            service_handler(IMAGE_SERVICE, images),
            service_handler(EVENTS_SERVICE, {"Subscribe": self._subscribe, "Publish": self._publish}),
        )

    def _unary(self, rpc: str) -> Callable[[Message, _Context], Coroutine[Any, Any, Message]]:
        async def answer(request: Message, context: _Context) -> Message:
            try:
                return await self._pump.call(rpc, request)
            except RpcFailure as failure:
                await _abort(context, failure)

        return answer

    async def _container_events(
        self, _request: pb.GetEventsRequest, context: _Context
    ) -> AsyncIterator[pb.ContainerEventResponse]:
        if not self._runtime.features.container_events:
            details = "unknown method GetContainerEvents for service runtime.v1.RuntimeService"
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, details)
        try:
            async with aclosing(self._pump.events(lambda event: event.cri_type is not None)) as events:
                async for event in events:
                    if (answer := self._runtime.cri_event(event)) is not None:
                        yield answer
        except RpcFailure as failure:
            await _abort(context, failure)

    async def _subscribe(self, request: events_service.SubscribeRequest, context: _Context) -> AsyncIterator[Envelope]:
        try:
            wanted = parse_filters(request.filters)
        except BadFilter as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        try:
            async with aclosing(self._pump.events(wanted)) as events:
                async for event in events:
                    yield event.envelope()
        except RpcFailure as failure:
            await _abort(context, failure)

    async def _publish(self, request: events_service.PublishRequest, _context: _Context) -> Empty:
        self._runtime.publish(request.topic, request.event)
        return Empty()


async def _abort(context: _Context, failure: RpcFailure) -> NoReturn:
    await context.abort(grpc.StatusCode[failure.code.name], failure.message)
