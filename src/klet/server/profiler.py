"""A profile of the CPU time of this process, by samples of the stacks of its threads.

A thread of its own looks a hundred times a second at every stack, and charges each with the CPU time that the kernel
has counted for its thread since. It takes no signals, and uses at most a twentieth of a processor. Loaded when the
first profile is asked for.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from types import CodeType, FrameType
from typing import Final

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.host.own_threads import OwnThread, read_own_threads
from klet.server.pprof_profile import ProfiledFunction, ProfiledStack, ProfileFacts, encode_profile

INTERVAL: Final = 0.01
SHARE: Final = 20
"""The sampler sleeps at least this many times as long as its last sample has kept a processor busy."""
SWITCH: Final = 0.0001
"""Seconds after which a thread that runs Python must let the sampler run. With Python's own 5 ms, all callbacks of the
event loop that are shorter would be seen from where the loop waits: there they let other threads run by themselves."""
DEEPEST: Final = 128
MOST_STACKS: Final = 8192
"""Different stacks that are kept. Time of further ones is shown in one place."""
_NANOSECONDS: Final = 1_000_000_000
_OTHERS: Final = ProfiledFunction("[stacks beyond the limit]", "", 0, 0)

ReadThreads = Callable[[], Mapping[int, OwnThread]]


class SamplingProfiler:
    """Records one profile."""

    def __init__(self, *, clock: Clock, read_threads: ReadThreads = read_own_threads) -> None:
        self._clock = clock
        self._read_threads = read_threads

    async def record(self, duration: timedelta) -> bytes:
        """Return the profile of this time, as `go tool pprof` reads it."""
        threads = Threads(limit=1, name="klet-profiler")
        sampler = StackSampler(read_threads=self._read_threads)
        switch = sys.getswitchinterval()
        started = int(self._clock.now().timestamp() * _NANOSECONDS)
        began = self._clock.monotonic()
        try:
            sys.setswitchinterval(SWITCH)
            async with asyncio.TaskGroup() as group:
                group.create_task(threads.run(sampler.run))
                try:
                    await self._clock.sleep(duration)
                finally:
                    sampler.stop()
            facts = ProfileFacts(
                started=started,
                duration=int((self._clock.monotonic() - began) * _NANOSECONDS),
                period=int(INTERVAL * _NANOSECONDS),
            )
            return await threads.run(encode_profile, facts, sampler.places, sampler.stacks())
        finally:
            sys.setswitchinterval(switch)
            threads.close()


class StackSampler:
    """Samples until it is stopped; run on a thread of its own, and read when that has ended."""

    def __init__(self, *, read_threads: ReadThreads) -> None:
        self._read_threads = read_threads
        self._stopped = threading.Event()
        self.places: list[ProfiledFunction] = []
        self._known: dict[tuple[int, int], int] = {}
        self._codes: dict[int, CodeType] = {}
        """Kept, so that no other code gets the identity of one that was seen."""
        self._seen: dict[tuple[tuple[int, ...], str], list[int]] = {}

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        before = self._read_threads()
        pause = INTERVAL
        while not self._stopped.wait(pause):
            began = time.thread_time()
            # The stacks first: while the times are read, other threads go on.
            stacks = self._look()
            now = self._read_threads()
            self._charge(stacks, before, now)
            before = now
            pause = max(INTERVAL, SHARE * (time.thread_time() - began))

    def stacks(self) -> list[ProfiledStack]:
        return [
            ProfiledStack(places=places, thread=thread, count=count, nanoseconds=spent)
            for (places, thread), (count, spent) in self._seen.items()
        ]

    def _look(self) -> dict[int, tuple[str, tuple[int, ...]]]:
        """Return the names and stacks of all threads that run Python, by the numbers that the kernel has for them."""
        frames = sys._current_frames()  # noqa: SLF001 - documented, for this purpose
        stacks = {ident: self._stack_of(frame) for ident, frame in frames.items() if ident != threading.get_ident()}
        return {
            each.native_id: (each.name, stacks[each.ident])
            for each in threading.enumerate()
            if each.native_id is not None and each.ident in stacks
        }

    def _charge(
        self,
        stacks: Mapping[int, tuple[str, tuple[int, ...]]],
        before: Mapping[int, OwnThread],
        now: Mapping[int, OwnThread],
    ) -> None:
        own = threading.get_native_id()
        for number, thread in now.items():
            spent = thread.nanoseconds - (before[number].nanoseconds if number in before else 0)
            if spent > 0 and number != own:
                name, stack = stacks.get(number) or (thread.name, (self._place_of_native(thread.name),))
                self._count(stack, name, spent)

    def _count(self, stack: tuple[int, ...], thread: str, spent: int) -> None:
        key = (stack, thread)
        if key not in self._seen and len(self._seen) >= MOST_STACKS:
            key = ((self._place((0, 0), lambda: _OTHERS),), "")
        seen = self._seen.setdefault(key, [0, 0])
        seen[0] += 1
        seen[1] += spent

    def _stack_of(self, frame: FrameType | None) -> tuple[int, ...]:
        places: list[int] = []
        while frame is not None and len(places) < DEEPEST:
            code, line = frame.f_code, frame.f_lineno or frame.f_code.co_firstlineno
            self._codes[id(code)] = code
            places.append(self._place((id(code), line), partial(_place_in, code, line)))
            frame = frame.f_back
        return tuple(places)

    def _place_of_native(self, name: str) -> int:
        return self._place((hash(name), -1), lambda: ProfiledFunction(f"[native thread {name}]", "", 0, 0))

    def _place(self, key: tuple[int, int], make: Callable[[], ProfiledFunction]) -> int:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = len(self.places)
            self.places.append(make())
        return known


def _place_in(code: CodeType, line: int) -> ProfiledFunction:
    return ProfiledFunction(code.co_qualname, code.co_filename, code.co_firstlineno, line)
