"""What containerd's content store says of blobs: those it has, and those that are being fetched.

It is a service of containerd's own on the socket that also serves the CRI. Any other runtime answers Unimplemented.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp
from msgspec import Struct

from klet.cri.connection import CriTransport
from klet.cri.errors import BadAnswer, Code, error_for
from klet.wire import containerd_content_pb2 as pb
from klet.wire.methods import Method, RequestT, ResponseT, method_of

NAMESPACE: Final = (("containerd-namespace", "k8s.io"),)
"""The metadata that every call needs: the namespace that the CRI plugin keeps images in."""
ANSWERS_WITHIN: Final = timedelta(seconds=5)
MOST_BLOBS: Final = 20_000
"""How many blobs an answer may list."""
LONGEST_MANIFEST: Final = 4 << 20
"""Bytes; containerd itself refuses larger ones."""
_SERVICE: Final = pb.DESCRIPTOR.services_by_name["Content"]
LIST_STATUSES: Final = method_of(_SERVICE, "ListStatuses", pb.ListStatusesRequest, pb.ListStatusesResponse)
LIST: Final = method_of(_SERVICE, "List", pb.ListContentRequest, pb.ListContentResponse)
READ: Final = method_of(_SERVICE, "Read", pb.ReadContentRequest, pb.ReadContentResponse)
_DIGEST: Final = re.compile(r"[a-z0-9]{1,32}:[0-9a-f]{32,128}", re.ASCII)
_HOST: Final = re.compile(r"[A-Za-z0-9.:-]{1,255}", re.ASCII)
_SOURCE: Final = "containerd.io/distribution.source."
"""Begins the label that names the repository of a blob; the host of the registry follows, without its port."""
_OF_MANIFEST: Final = "containerd.io/gc.ref.content.config"
"""A label that only manifests have."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Ingest(Struct, frozen=True, kw_only=True):
    """A blob that is being written."""

    digest: str
    began: datetime
    offset: int


class StoredBlob(Struct, frozen=True, kw_only=True):
    """A blob that is there."""

    digest: str
    size: int
    created: datetime
    repositories: frozenset[str] = frozenset()
    """Where it was pulled from, on the host that was asked for."""


class ContainerdContent:
    """containerd's content store. Each method raises CriError."""

    def __init__(self, *, connection: CriTransport, deadline: timedelta = ANSWERS_WITHIN) -> None:
        self._connection = connection
        self._deadline = deadline

    async def ingests(self) -> Sequence[Ingest]:
        """Return the blobs that are being fetched."""
        answer = await self._connection.call(LIST_STATUSES, pb.ListStatusesRequest(), timeout=self._deadline)
        found = (_read_ingest(status) for status in answer.statuses[:MOST_BLOBS])
        return [ingest for ingest in found if ingest is not None]

    async def manifests(self, host: str) -> Sequence[StoredBlob]:
        """Return the manifests that were pulled from a registry; the host has no port."""
        if not _HOST.fullmatch(host):
            return []
        label = f"{_SOURCE}{host}"
        # A comma joins what must hold together.
        return await self._list([f'labels."{label}",labels."{_OF_MANIFEST}"'], label)

    async def blobs(self, digests: Iterable[str]) -> Sequence[StoredBlob]:
        """Return those of these blobs that are there."""
        filters = [f"digest=={digest}" for digest in digests if is_digest(digest)]
        # Without any filter, containerd would list everything.
        return await self._list(filters, "") if filters else []

    async def read(self, digest: str) -> bytes:
        """Return a manifest as it was pulled."""
        manifest = bytearray()

        def take(answer: pb.ReadContentResponse) -> None:
            nonlocal manifest
            manifest += answer.data
            if len(manifest) > LONGEST_MANIFEST:
                raise BadAnswer(f"manifest {digest} has more than {LONGEST_MANIFEST} bytes")

        await self._collect(READ, pb.ReadContentRequest(digest=digest), take)
        return bytes(manifest)

    async def _list(self, filters: Sequence[str], label: str) -> Sequence[StoredBlob]:
        found: list[StoredBlob] = []

        def take(answer: pb.ListContentResponse) -> None:
            if len(found) + len(answer.info) > MOST_BLOBS:
                raise BadAnswer(f"the content store lists more than {MOST_BLOBS} blobs")
            found.extend(_read_blob(info, label) for info in answer.info if is_digest(info.digest))

        await self._collect(LIST, pb.ListContentRequest(filters=filters), take)
        return found

    async def _collect(
        self, method: Method[RequestT, ResponseT], request: RequestT, take: Callable[[ResponseT], None]
    ) -> None:
        try:
            async with (
                asyncio.timeout(self._deadline.total_seconds()),
                aclosing(self._connection.stream(method, request)) as answers,
            ):
                async for answer in answers:
                    take(answer)
        except TimeoutError:
            raise error_for(Code.DEADLINE_EXCEEDED, f"{method.path} took more than {self._deadline}") from None


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def _read_ingest(status: pb.Status) -> Ingest | None:
    """Return what is fetched; None for an ingest that no digest names, as those of a build."""
    digest = status.ref[status.ref.find("-") + 1 :]  # layer-sha256:…, config-sha256:…
    if not is_digest(digest):
        return None
    return Ingest(digest=digest, began=_instant(status.started_at), offset=max(0, status.offset))


def _read_blob(info: pb.Info, label: str) -> StoredBlob:
    sources = info.labels.get(label, "") if label else ""
    return StoredBlob(
        digest=info.digest,
        size=max(0, info.size),
        created=_instant(info.created_at),
        repositories=frozenset(filter(None, sources.split(","))),
    )


def _instant(stamp: Timestamp) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)
    except OverflowError:
        return _EPOCH
