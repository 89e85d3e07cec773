"""A collector of traces for tests: an OTLP receiver over gRPC that keeps the spans it gets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from grpc import aio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)


class ReceivedSpan:
    """A span with its instrumentation scope and the resource that sent it."""

    def __init__(self, span: Any, *, scope: str, resource: dict[str, object]) -> None:
        self.name: str = span.name
        self.scope = scope
        self.resource = resource
        self.kind: str = span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_")
        self.attributes = _plain(span.attributes)
        self.events = [(event.name, _plain(event.attributes)) for event in span.events]
        self.trace: str = span.trace_id.hex()
        self.id: str = span.span_id.hex()
        self.parent: str = span.parent_span_id.hex()
        self.has_failed: bool = span.status.code == 2
        self.message: str = span.status.message
        self.links: int = len(span.links)


class Collector(TraceServiceServicer):
    """Keeps all spans."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self._arrived = asyncio.Event()

    async def Export(  # noqa: N802 - the name of the call
        self,
        request: ExportTraceServiceRequest,
        context: "aio.ServicerContext[Any, Any]",  # noqa: ARG002 - grpc's signature
    ) -> ExportTraceServiceResponse:
        for sent in request.resource_spans:
            resource = _plain(sent.resource.attributes)
            for group in sent.scope_spans:
                self.spans += [ReceivedSpan(each, scope=group.scope.name, resource=resource) for each in group.spans]
        self._arrived.set()
        return ExportTraceServiceResponse()

    async def until(self, name: str, count: int = 1) -> list[ReceivedSpan]:
        """Wait for so many spans of a name, and return them."""
        while len(found := self.named(name)) < count:
            self._arrived.clear()
            await self._arrived.wait()
        return found

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]


@asynccontextmanager
async def run_collector() -> AsyncIterator[tuple[Collector, str]]:
    """Receive spans until the block is left; gives the endpoint."""
    server, collector = aio.server(), Collector()
    add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]  # generated code
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield collector, f"127.0.0.1:{port}"
    finally:
        await server.stop(grace=None)


def _plain(attributes: Any) -> dict[str, object]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
