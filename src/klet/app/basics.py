"""What every part of the real agent stands on, and its opening."""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.app.runtime_port import open_runtime
from klet.app.settings import AgentSettings
from klet.cri.client import CriClient
from klet.events.recorder import EventingRecorder
from klet.host.machine.cache import MachineCache
from klet.journal.store import Journal
from klet.model.causes import CauseRecorder
from klet.wire import cri_v1_pb2 as cri

DISK_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Basics:
    """Time, chance, the machine, threads for the disk, the runtime, and where causes are recorded."""

    clock: Clock
    randomness: random.Random
    machine: MachineCache
    threads: Threads
    runtime: CriClient
    runtime_version: cri.VersionResponse
    journal: Journal
    events: EventingRecorder | None
    """In a cluster, what is recorded becomes Events too."""

    @property
    def recorder(self) -> CauseRecorder:
        return self.events or self.journal


@asynccontextmanager
async def open_basics(
    settings: AgentSettings, *, machine: MachineCache, clock: Clock, has_events: bool
) -> AsyncIterator[Basics]:
    """Open the journal and the runtime; raises KletError if one of them cannot be had."""
    async with AsyncExitStack() as opened:
        threads = Threads(limit=DISK_THREADS)
        opened.callback(threads.close)
        journal = Journal(path=settings.journal, clock=clock, max_records=settings.journal_records)
        await journal.open()
        opened.push_async_callback(journal.close)
        events = EventingRecorder(inner=journal, clock=clock) if has_events else None
        runtime = await opened.enter_async_context(open_runtime(settings, events or journal, clock))
        yield Basics(
            clock=clock,
            randomness=random.Random(),
            machine=machine,
            threads=threads,
            runtime=runtime,
            runtime_version=await runtime.version(cri.VersionRequest()),
            journal=journal,
            events=events,
        )
