"""Keeps on disk what the next run of the agent has to know: the statuses that were reported, and back-offs.

A change is written at once; those of the moment after it are gathered, so pods that change often cost little. The disk
is waited for when nothing has changed for a while: the runtime writes to it too, and all who do wait for each other.
"""

import logging
from datetime import timedelta
from typing import Protocol, TypeVar

import msgspec

from klet.aio.broadcast import Subscription, until_any
from klet.aio.clock import Clock
from klet.api.codec import DecodeError, decode, encode
from klet.api.pod import PodStatus
from klet.checkpoint import CheckpointDamaged, CheckpointError, Envelope
from klet.model.memory import AgentMemory, CrashDelay, PullDelay
from klet.model.pods import PodUID
from klet.status.board import StatusBoard

logger = logging.getLogger(__name__)

D_co = TypeVar("D_co", covariant=True)

KIND = "AgentMemory"
VERSION = 1
GATHER = timedelta(milliseconds=100)
CALM = timedelta(seconds=2)
LONGEST_UNSETTLED = timedelta(seconds=30)
RETRY = timedelta(seconds=5)


class MemoryStore(Protocol):
    """Stores the memory for the next run of the agent."""

    async def save(self, value: AgentMemory, *, sync: bool = True) -> None:
        """Write it for the next agent; raises CheckpointError."""
        ...

    async def settle(self) -> None:
        """Write it so that it survives a crash of the machine, too; raises CheckpointError."""
        ...


class Delays(Protocol[D_co]):
    """The back-offs of one kind: of crashes, or of image pulls."""

    def all(self) -> tuple[D_co, ...]: ...

    def changes(self) -> Subscription[PodUID]: ...


class MemoryKeeper:
    """Writes the memory whenever it has changed; the newest wins."""

    def __init__(
        self,
        *,
        store: MemoryStore,
        statuses: StatusBoard,
        delays: Delays[CrashDelay],
        pulls: Delays[PullDelay],
        clock: Clock,
    ) -> None:
        self._store = store
        self._statuses = statuses
        self._delays = delays
        self._pulls = pulls
        self._clock = clock

    async def run(self) -> None:
        with (
            self._statuses.changes() as statuses,
            self._statuses.removals() as removals,
            self._delays.changes() as delays,
            self._pulls.changes() as pulls,
        ):
            while True:
                await until_any(statuses, delays, pulls)
                settles_by = self._clock.monotonic() + LONGEST_UNSETTLED.total_seconds()
                while [*statuses.drain(), *delays.drain(), *pulls.drain()]:
                    removals.drain()
                    await self._save()
                    # A removed pod is written at once: its UID may come back, and must not find the old counts.
                    await self._clock.wait(until_any(removals), at_most=GATHER)
                    if self._clock.monotonic() >= settles_by:
                        break
                    await self._clock.wait(until_any(statuses, delays, pulls), at_most=CALM)
                await self._settle()

    async def _save(self) -> None:
        """Write, and retry until it succeeds: a disk that is full now may not be so later."""
        while True:
            memory = AgentMemory(statuses=self._statuses.all(), delays=self._delays.all(), pulls=self._pulls.all())
            try:
                await self._store.save(memory, sync=False)
            except CheckpointError as error:
                logger.warning("A restart would forget what was reported", extra={"error": str(error)})
                await self._clock.sleep(RETRY)
            else:
                return

    async def _settle(self) -> None:
        try:
            await self._store.settle()
        except CheckpointError as error:
            logger.warning("A crash of the machine could lose what was reported", extra={"error": str(error)})


class _Payload(msgspec.Struct, frozen=True, kw_only=True):
    statuses: dict[str, msgspec.Raw]
    delays: tuple[CrashDelay, ...]
    pulls: tuple[PullDelay, ...] = ()


class _ReadPayload(msgspec.Struct, frozen=True, kw_only=True):
    """The same as it is read: what is left of a pod that no node would take in today is left out, not the rest."""

    statuses: dict[str, msgspec.Raw]
    delays: tuple[msgspec.Raw, ...]
    pulls: tuple[msgspec.Raw, ...] = ()


class _Owned(msgspec.Struct, frozen=True):
    uid: str


D = TypeVar("D", CrashDelay, PullDelay)


def _owned(raws: tuple[msgspec.Raw, ...], kind: type[D]) -> tuple[D, ...]:
    owned = (raw for raw in raws if isinstance(msgspec.json.decode(raw, type=_Owned).uid, PodUID))
    return tuple(msgspec.json.decode(raw, type=kind) for raw in owned)


class MemoryFormat:
    """The memory as klet's own checkpoint. A status is encoded once, however often it is written."""

    def __init__(self) -> None:
        self._envelope = Envelope(kind=KIND, version=VERSION, payload=msgspec.Raw)
        self._encoded: dict[PodUID, tuple[PodStatus, msgspec.Raw]] = {}

    def encode(self, value: AgentMemory) -> bytes:
        self._encoded = {uid: self._encode_status(uid, status) for uid, status in value.statuses.items()}
        payload = _Payload(
            statuses={uid: raw for uid, (_, raw) in self._encoded.items()},
            delays=value.delays,
            pulls=value.pulls,
        )
        return self._envelope.encode(msgspec.Raw(msgspec.json.encode(payload)))

    def decode(self, data: bytes) -> AgentMemory:
        try:
            payload = msgspec.json.decode(self._envelope.decode(data), type=_ReadPayload)
            owned = {uid: raw for uid, raw in payload.statuses.items() if isinstance(uid, PodUID)}
            return AgentMemory(
                statuses={uid: decode(PodStatus, bytes(raw)) for uid, raw in owned.items()},
                delays=_owned(payload.delays, CrashDelay),
                pulls=_owned(payload.pulls, PullDelay),
            )
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, DecodeError) as error:
            raise CheckpointDamaged(f"field payload: {error}") from error

    def _encode_status(self, uid: PodUID, status: PodStatus) -> tuple[PodStatus, msgspec.Raw]:
        known = self._encoded.get(uid)
        return known if known is not None and known[0] is status else (status, msgspec.Raw(encode(status)))
