"""Recognises that the machine was rebooted since the last run of the agent, with an API server or without one.

The boot id and what became of the last run are kept in `klet-boot.json`. Upstream notices a reboot only by the Node
object at the API server, for the Event `Rebooted` (`node/status.py`).
"""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.checkpoint import CheckpointError, Envelope
from klet.host.machine.info import MachineInfo
from klet.model.boots import Reboot
from klet.model.causes import CauseId, CauseRecorder, Finding, FindingSubject, Measurement
from klet.model.pods import PodUID
from klet.model.reasons import Reason

logger = logging.getLogger(__name__)

DECIDER: Final = "node.boots"
KIND: Final = "NodeBoot"
VERSION: Final = 1


class BootRecord(Struct, frozen=True, kw_only=True):
    """One boot of the machine, and the last run of the agent in it."""

    boot_id: str
    booted_at: datetime | None = None
    noticed_at: datetime
    """When the first run of the agent in this boot began."""
    reboot: CauseId | None = None
    """The record of the reboot that began this boot; None if no boot before it was known."""
    has_run: bool = False
    """Whether a run of the agent in this boot got as far as pods."""
    stopped_at: datetime | None = None
    """When the last run was stopped by request; None while one runs, or if the last one was killed."""


BOOT_FORMAT: Final = Envelope(kind=KIND, version=VERSION, payload=BootRecord)


class BootStore(Protocol):
    """Stores the newest boot, so that it survives the loss of power."""

    async def save(self, value: BootRecord) -> None:
        """Return when it is on disk; raises CheckpointError."""
        ...


def find_boot_change(
    previous: BootRecord | None, machine: MachineInfo, *, last_record: datetime | None, now: datetime
) -> Finding | None:
    """Return the finding of a reboot; None if there was none, or if that cannot be known."""
    if previous is None or not machine.boot_id or machine.boot_id == previous.boot_id:
        return None
    was_stopped = previous.stopped_at is not None
    signs = [at for at in (previous.stopped_at, last_record) if at is not None]
    seen = max(signs, default=None)
    measured: dict[str, Measurement] = {
        "bootId": machine.boot_id,
        "previousBootId": previous.boot_id,
        "agentWasStopped": was_stopped,
        **_instants(
            {"bootedAt": machine.booted_at, "previousBootedAt": previous.booted_at, "lastRecordAt": last_record}
        ),
    }
    away, is_known = "", seen is not None and now >= seen
    # A clock that was set back, as on a machine without a battery for it, says nothing about how long it took.
    if seen is not None and is_known:
        seconds = round((now - seen).total_seconds(), 1)
        measured["awaySeconds"] = seconds
        away = f" after {seconds:g} s away"
    how = (
        "the agent had been stopped before, as in a shutdown"
        if was_stopped
        else "the agent had not been stopped before: a reset, a loss of power, or a crash"
    )
    booted = f", booted at {machine.booted_at:%Y-%m-%d %H:%M:%S} UTC" if machine.booted_at is not None else ""
    return Finding(
        subject=FindingSubject(),
        decider=DECIDER,
        decision=Reason.NODE_REBOOTED,
        message=f"the node was rebooted and is back{away}{booted}; {how}",
        measurements=measured,
        since=seen if is_known else None,
        next="start the pods again, as their restart policies say",
    )


def _instants(known: Mapping[str, datetime | None]) -> dict[str, str]:
    return {name: at.isoformat(timespec="seconds") for name, at in known.items() if at is not None}


class BootKeeper:
    """Compares the boot of the machine with the last one, and notes how each run of the agent ends."""

    def __init__(
        self, *, left: BootRecord | None, store: BootStore, machine: MachineInfo, recorder: CauseRecorder, clock: Clock
    ) -> None:
        self._known = left
        """The newest boot, as it is on disk or should be."""
        self._store = store
        self._machine = machine
        self._recorder = recorder
        self._clock = clock

    async def start(self, *, last_record: datetime | None, pods: frozenset[PodUID]) -> Reboot | None:
        """Record a reboot, once; return the newest that is known. `pods` are those that the last run knew."""
        if not self._machine.boot_id:
            return None
        now = self._clock.now()
        known = self._known
        if known is None or known.boot_id != self._machine.boot_id:
            found = find_boot_change(known, self._machine, last_record=last_record, now=now)
            known = BootRecord(
                boot_id=self._machine.boot_id,
                booted_at=self._machine.booted_at,
                noticed_at=now,
                reboot=self._recorder.record(found) if found is not None else None,
            )
            await self._save(known)
        if known.reboot is None:
            return None
        return Reboot(cause=known.reboot, noticed_at=known.noticed_at, before=frozenset() if known.has_run else pods)

    async def note_running(self) -> None:
        """Note that the agent is about to act: if it is not stopped, it was killed, or the machine was."""
        if self._known is not None:
            await self._save(replace(self._known, has_run=True, stopped_at=None))

    async def note_stopped(self) -> None:
        """Note that the agent was stopped by request."""
        if self._known is not None:
            await self._save(replace(self._known, stopped_at=self._clock.now()))

    async def _save(self, value: BootRecord) -> None:
        """Write it. A failure must not stop the agent: then the next run may record the reboot again."""
        self._known = value
        try:
            await self._store.save(value)
        except CheckpointError as error:
            logger.warning("The boot of the machine cannot be saved", extra={"error": str(error)})
