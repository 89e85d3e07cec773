"""Keeps on disk what the next run of the agent has to know: the statuses that were reported, and back-offs.

A change is written at once; changes of the next 100 ms are written together. The file is synced to disk (fsync) after
2 s without a change, or after 30 s at the latest: a sync also waits for what the runtime is writing to the disk.
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
from klet.model.pods import PodUID
from klet.model.saved_state import CrashDelay, PullDelay, SavedState
from klet.status.board import StatusBoard

logger = logging.getLogger(__name__)

D_co = TypeVar("D_co", covariant=True)

KIND = "AgentMemory"
"""Of the file `klet-memory.json`. It is the former name of `SavedState`: files of older versions have it."""
VERSION = 1
BATCH_DELAY = timedelta(milliseconds=100)
QUIET_BEFORE_SYNC = timedelta(seconds=2)
MAX_UNSYNCED = timedelta(seconds=30)
RETRY = timedelta(seconds=5)


class SavedStateStore(Protocol):
    """Stores the saved state for the next run of the agent."""

    async def save(self, value: SavedState, *, sync: bool = True) -> None:
        """Write it; with `sync` it also survives a crash of the machine. Raises CheckpointError."""
        ...

    async def sync_to_disk(self) -> None:
        """Sync what was saved to disk, so that it survives a crash of the machine, too; raises CheckpointError."""
        ...


class Delays(Protocol[D_co]):
    """The back-offs of one kind: of crashes, or of image pulls."""

    def all(self) -> tuple[D_co, ...]: ...

    def changes(self) -> Subscription[PodUID]: ...


class SavedStateKeeper:
    """Writes the state whenever it has changed; only the newest is kept."""

    def __init__(
        self,
        *,
        store: SavedStateStore,
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
                sync_by = self._clock.monotonic() + MAX_UNSYNCED.total_seconds()
                while [*statuses.drain(), *delays.drain(), *pulls.drain()]:
                    removals.drain()
                    await self._save()
                    # A removed pod is written at once: its UID may come back, and must not find the old counts.
                    await self._clock.wait(until_any(removals), at_most=BATCH_DELAY)
                    if self._clock.monotonic() >= sync_by:
                        break
                    await self._clock.wait(until_any(statuses, delays, pulls), at_most=QUIET_BEFORE_SYNC)
                await self._sync_to_disk()

    async def save_now(self) -> None:
        """Save what is on the boards now so that it survives the loss of power; raises CheckpointError."""
        await self._store.save(self._state(), sync=False)
        await self._store.sync_to_disk()

    def _state(self) -> SavedState:
        return SavedState(statuses=self._statuses.all(), delays=self._delays.all(), pulls=self._pulls.all())

    async def _save(self) -> None:
        """Write, and retry until it succeeds: a disk that is full now may not be so later."""
        while True:
            try:
                await self._store.save(self._state(), sync=False)
            except CheckpointError as error:
                logger.warning(
                    "Cannot save pod statuses; a restart of klet would lose them", extra={"error": str(error)}
                )
                await self._clock.sleep(RETRY)
            else:
                return

    async def _sync_to_disk(self) -> None:
        try:
            await self._store.sync_to_disk()
        except CheckpointError as error:
            logger.warning(
                "Cannot sync saved pod statuses to disk; a machine crash could lose them", extra={"error": str(error)}
            )


class _Payload(msgspec.Struct, frozen=True, kw_only=True):
    statuses: dict[str, msgspec.Raw]
    delays: tuple[CrashDelay, ...]
    pulls: tuple[PullDelay, ...] = ()


class _ReadPayload(msgspec.Struct, frozen=True, kw_only=True):
    """The payload as read: entries whose pod UID is not valid are skipped, the others are kept."""

    statuses: dict[str, msgspec.Raw]
    delays: tuple[msgspec.Raw, ...]
    pulls: tuple[msgspec.Raw, ...] = ()


class _WithUid(msgspec.Struct, frozen=True):
    uid: str


D = TypeVar("D", CrashDelay, PullDelay)


def _with_valid_uid(raws: tuple[msgspec.Raw, ...], kind: type[D]) -> tuple[D, ...]:
    valid = (raw for raw in raws if isinstance(msgspec.json.decode(raw, type=_WithUid).uid, PodUID))
    return tuple(msgspec.json.decode(raw, type=kind) for raw in valid)


class SavedStateFormat:
    """The saved state as a checkpoint in klet's own format. A status is encoded once, however often it is written."""

    def __init__(self) -> None:
        self._envelope = Envelope(kind=KIND, version=VERSION, payload=msgspec.Raw)
        self._encoded: dict[PodUID, tuple[PodStatus, msgspec.Raw]] = {}

    def encode(self, value: SavedState) -> bytes:
        self._encoded = {uid: self._encode_status(uid, status) for uid, status in value.statuses.items()}
        payload = _Payload(
            statuses={uid: raw for uid, (_, raw) in self._encoded.items()},
            delays=value.delays,
            pulls=value.pulls,
        )
        return self._envelope.encode(msgspec.Raw(msgspec.json.encode(payload)))

    def decode(self, data: bytes) -> SavedState:
        try:
            payload = msgspec.json.decode(self._envelope.decode(data), type=_ReadPayload)
            valid = {uid: raw for uid, raw in payload.statuses.items() if isinstance(uid, PodUID)}
            return SavedState(
                statuses={uid: decode(PodStatus, bytes(raw)) for uid, raw in valid.items()},
                delays=_with_valid_uid(payload.delays, CrashDelay),
                pulls=_with_valid_uid(payload.pulls, PullDelay),
            )
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, DecodeError) as error:
            raise CheckpointDamaged(f"field payload: {error}") from error

    def _encode_status(self, uid: PodUID, status: PodStatus) -> tuple[PodStatus, msgspec.Raw]:
        known = self._encoded.get(uid)
        return known if known is not None and known[0] is status else (status, msgspec.Raw(encode(status)))
