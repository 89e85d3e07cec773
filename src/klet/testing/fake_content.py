"""A content store like containerd's, over gRPC: what is in it and what is being fetched is what a test says."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from grpc import aio

from klet.wire import containerd_content_pb2 as pb
from klet.wire.methods import service_handler

_HAS_LABEL: Final = re.compile(r'labels\."([^"]*)"')
_PIECE: Final = 1 << 16
_BATCH: Final = 100
"""Blobs in one message, as containerd lists them."""


class FakeContent:
    """Blobs and ingests; `calls` has the name of every call so far."""

    def __init__(self) -> None:
        self.infos: dict[str, pb.Info] = {}
        self.statuses: dict[str, pb.Status] = {}
        self.data: dict[str, bytes] = {}
        self.calls: list[str] = []
        self.hangs = False
        """Whether no call is answered."""

    def add_manifest(self, data: bytes, *, created: datetime, host: str, repositories: Sequence[str]) -> str:
        """Store a manifest with the labels that containerd gives one that it has pulled."""
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.add_blob(digest, size=len(data), created=created)
        self.data[digest] = data
        labels = self.infos[digest].labels
        labels[f"containerd.io/distribution.source.{host}"] = ",".join(repositories)
        labels["containerd.io/gc.ref.content.config"] = f"sha256:{'0' * 64}"
        return digest

    def add_blob(self, digest: str, *, size: int, created: datetime) -> None:
        """Store a blob, whose ingest ends with that."""
        info = pb.Info(digest=digest, size=size)
        info.created_at.FromDatetime(created)
        self.infos[digest] = info
        self.statuses.pop(digest, None)

    def fetch(self, digest: str, *, offset: int, total: int, began: datetime) -> None:
        """Let a blob be fetched, up to this byte."""
        status = pb.Status(ref=f"layer-{digest}", offset=offset, total=total)
        status.started_at.FromDatetime(began)
        self.statuses[digest] = status

    @asynccontextmanager
    async def serve(self, socket: Path) -> AsyncIterator[str]:
        """Yield the endpoint."""
        server = aio.server()
        service = pb.DESCRIPTOR.services_by_name["Content"]
        behaviours: dict[str, Callable[..., Any]] = {
            "ListStatuses": self._list_statuses,
            "List": self._list,
            "Read": self._read,
        }
        server.add_generic_rpc_handlers((service_handler(service, behaviours),))
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        try:
            yield f"unix://{socket}"
        finally:
            await server.stop(None)

    async def _list_statuses(self, _request: pb.ListStatusesRequest, context: Any) -> pb.ListStatusesResponse:
        await self._note("ListStatuses", context)
        return pb.ListStatusesResponse(statuses=list(self.statuses.values()))

    async def _list(self, request: pb.ListContentRequest, context: Any) -> AsyncIterator[pb.ListContentResponse]:
        await self._note("List", context)
        found = [info for info in self.infos.values() if any(_matches(info, each) for each in request.filters)]
        for start in range(0, len(found), _BATCH):
            yield pb.ListContentResponse(info=found[start : start + _BATCH])

    async def _read(self, request: pb.ReadContentRequest, context: Any) -> AsyncIterator[pb.ReadContentResponse]:
        await self._note("Read", context)
        data = self.data[request.digest]
        for start in range(0, len(data), _PIECE):
            yield pb.ReadContentResponse(offset=start, data=data[start : start + _PIECE])

    async def _note(self, call: str, context: Any) -> None:
        self.calls.append(call)
        if self.hangs:
            await asyncio.Event().wait()
        if ("containerd-namespace", "k8s.io") not in list(context.invocation_metadata()):
            await context.abort(3, "namespace is required: failed precondition")  # as containerd refuses it


def _matches(info: pb.Info, filter_: str) -> bool:
    """Return whether a filter holds: the two forms that klet uses, joined by commas."""
    labels = _HAS_LABEL.findall(filter_)
    if labels:
        return all(label in info.labels for label in labels)
    return filter_ == f"digest=={info.digest}"
