"""Ends what takes longer than its deadline, and says where everything stood.

A thread watches, so that it sees a main thread that is blocked in C. The main thread is asked twice, and then no more:

1. The stacks are printed. If an event loop runs, its main task is cancelled: an exception at any moment could leave a
   task that no loop runs any more. Else an exception is raised in the main thread.
2. After the grace the exception is raised in any case, and once more after another one.
3. Then the process ends. If the watching thread itself gets no turn, because C code keeps the interpreter's lock,
   `faulthandler` prints the stacks of the threads and ends the process.
"""

import asyncio
import faulthandler
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from klet.aio.clock import Clock
from klet.testing.runs.stacks import render_stacks

ENDED_CODE: Final = 70
"""The exit code of a process whose test could not be ended alone."""
_MOST_STRIKES: Final = 3
_OUTSIDE: Final = 300.0
"""Seconds until faulthandler ends the process if the first test has not begun."""
_LONGEST: Final = 86400.0
"""Seconds that faulthandler waits for what has no deadline."""
# Where the task or the future is that a loop runs to its end.
_RUNNERS: Final = {
    asyncio.Runner.run.__code__: "task",
    asyncio.BaseEventLoop.run_until_complete.__code__: "future",
}


class DeadlinePassed(BaseException):
    """Raised in the main thread, wherever that is; no `except Exception` shall take it."""


class Watch:
    """One stretch of work with a deadline."""

    def __init__(self, *, name: str, limit: float, began: float) -> None:
        self.name = name
        self.limit = limit
        self.began = began
        self.strikes = 0

    @property
    def message(self) -> str:
        return f"{self.name} took longer than its deadline of {self.limit:g} s; the stacks are printed above"

    def next_strike(self, grace: float) -> float:
        return self.began + self.limit + self.strikes * grace


class RunWatchdog:
    """Watches what the main thread does, one stretch after the other."""

    def __init__(self, *, write: Callable[[str], None], descriptor: int, grace: float, clock: Clock) -> None:
        self._write = write
        self._descriptor = descriptor
        self._grace = grace
        self._clock = clock
        self._watch: Watch | None = None
        self._newest_limit = _OUTSIDE
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._previous: Any = None

    def open(self) -> None:
        """Begin to watch; for the main thread."""
        self._previous = signal.signal(signal.SIGALRM, self._alarm)
        self._start()
        # A process with threads should not fork, and Python 3.12 warns of it.
        os.register_at_fork(before=self._before_fork, after_in_parent=self._after_fork)

    def close(self) -> None:
        """Undo `open`, if it was called."""
        if self._thread is not None:
            self._stop()
            self._thread = None
            signal.signal(signal.SIGALRM, self._previous)

    def begin(self, name: str, limit: float) -> Watch:
        """Watch what follows; a limit of 0 is none."""
        watch = Watch(name=name, limit=limit or float("inf"), began=self._clock.monotonic())
        self._watch = watch
        if watch.limit != self._newest_limit:
            # It may block at once, before the watching thread has seen it.
            self._newest_limit = watch.limit
            self._arm(watch.began, watch)
        return watch

    def end(self) -> None:
        self._watch = None

    def _start(self) -> None:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="klet watchdog", daemon=True)
        self._thread.start()

    def _stop(self) -> None:
        if self._thread is not None:
            self._stopping.set()
            self._thread.join()
            faulthandler.cancel_dump_traceback_later()

    def _before_fork(self) -> None:
        self._stop()

    def _after_fork(self) -> None:
        if self._thread is not None:
            self._start()

    def _run(self) -> None:
        """Look now and then: a wake-up at each beginning and end would cost the tests more."""
        armed_until = 0.0
        while True:
            now, watch = self._clock.monotonic(), self._watch
            if now >= armed_until:
                self._arm(now, watch)
                armed_until = now + self._grace / 2
            if watch is not None and now >= watch.next_strike(self._grace):
                self._strike(watch)
            if self._stopping.wait(self._grace / 40):
                return

    def _arm(self, now: float, watch: Watch | None) -> None:
        """Let faulthandler end the process should this thread not come round again until well after the deadline."""
        # Between two tests: what comes next may block at once, and will have much the same limit.
        left = self._newest_limit if watch is None else watch.began + watch.limit - now
        patience = min(max(0.0, left), _LONGEST) + (_MOST_STRIKES + 2) * self._grace
        faulthandler.dump_traceback_later(patience, exit=True, file=self._descriptor)

    def _strike(self, watch: Watch) -> None:
        watch.strikes += 1
        if watch.strikes == 1:
            self._write(f"\n+++ {watch.name} has passed its deadline of {watch.limit:g} s\n{render_stacks()}+++\n")
        if watch.strikes <= _MOST_STRIKES:
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGALRM)
            return
        self._write(f"\n+++ {watch.name} cannot be ended: the process ends\n")
        os._exit(ENDED_CODE)

    def _alarm(self, _number: int, frame: FrameType | None) -> None:
        """Act in the main thread, at a strike; or on a signal from outside that asks for the stacks."""
        watch = self._watch
        if watch is None or not watch.strikes:
            self._write(f"\n+++ stacks\n{render_stacks()}+++\n")
            return
        future = find_main_task(frame) if watch.strikes == 1 else None
        if future is None:
            raise DeadlinePassed(watch.message)
        # Wakes the loop too, wherever it waits.
        future.get_loop().call_soon_threadsafe(future.cancel, watch.message)


def find_main_task(frame: FrameType | None) -> "asyncio.Future[Any] | None":
    """Return what the innermost running loop of this stack is to bring to its end."""
    while frame is not None:
        if (name := _RUNNERS.get(frame.f_code)) is not None:
            found = frame.f_locals.get(name)
            if isinstance(found, asyncio.Future) and not found.done():
                return found
        frame = frame.f_back
    return None
