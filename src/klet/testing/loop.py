"""An event loop with virtual time, for simulations that replay exactly.

No selector, no sockets, no threads: when nothing is ready, time jumps to the next timer. Nothing ready and no timer is
a deadlock, and is reported with the place where each task waits. Tasks hash by their order of creation, because
asyncio keeps them in sets, and sets ordered by address would differ from run to run.
"""

import asyncio
import contextvars
import heapq
import random
from asyncio import base_events
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, TypeVar, TypeVarTuple, cast

import msgspec

from klet.aio.clock import LoopClock
from klet.errors import KletError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# The wall time at which virtual time zero lies, for LoopClock(epoch=EPOCH).
EPOCH = datetime(2030, 1, 1, tzinfo=UTC)

# Passes of the loop at one instant before it counts as going round in circles.
_MAX_PASSES_AT_ONE_INSTANT = 20_000

# A timer may fire this much early. It must be less than any step of time, or a task that sleeps again and again until
# an instant just ahead would never get there.
_RESOLUTION = 1e-7


class StuckError(KletError):
    """The simulation cannot go on: no task will ever wake, or time never moves again."""


class VirtualLoop(base_events.BaseEventLoop):
    """Runs callbacks in a fixed order and jumps over waiting times.

    With a seed, timers that are due at the same instant fire in an order drawn from it; without, in the order of
    creation. A callback that is scheduled without a context runs in that of the loop.
    """

    def __init__(self, *, seed: int | None = None) -> None:
        super().__init__()
        self._stopping = False
        self._closed = False
        self.instant = 0.0
        """What `time` says."""
        self._created = 0
        self._ties = None if seed is None else random.Random(seed)
        self._ready: deque[_Handle] = deque()
        self._timers: list[tuple[float, float, int, _Handle]] = []
        self._steps_left = 0
        self._alarm: Callable[[], None] | None = None

    def time(self) -> float:
        return self.instant

    def after_steps(self, steps: int, alarm: Callable[[], None]) -> None:
        """Call between two callbacks, when that many more have run: tasks may be stopped at any of their awaits."""
        self._steps_left = steps
        self._alarm = alarm

    def no_alarm(self) -> None:
        self._alarm = None

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Any,
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> "asyncio.Task[Any]":
        self._created += 1
        # The default names count through the whole process; a replay needs them to start over with the loop.
        named = f"Task-{self._created}" if name is None else str(name)
        return _Task(coro, number=self._created, loop=self, name=named, context=context)

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = _Handle(callback, args, context, self.instant)
        self._ready.append(handle)
        return cast("asyncio.Handle", handle)

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.instant + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = _Handle(callback, args, context, when)
        self._created += 1
        tie = self._ties.random() if self._ties is not None else 0.0
        heapq.heappush(self._timers, (when, tie, self._created, handle))
        return cast("asyncio.TimerHandle", handle)

    def run_in_executor(self, _executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
        """Call at once, on the loop: threads would make the order a matter of luck."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  # handed to the caller through the future
            future.set_exception(error)
        return future

    def _run_once(self) -> None:
        """Run callbacks until the loop is stopped; the base class calls this until then."""
        ready, timers = self._ready, self._timers
        passes = 0
        while not self._stopping:
            if not ready:
                self._jump()
                passes = 0
            passes += 1
            if passes > _MAX_PASSES_AT_ONE_INSTANT:
                self._stuck("time stands still, tasks keep waking each other")
            due = self.instant + _RESOLUTION
            while timers and timers[0][0] <= due:
                ready.append(heapq.heappop(timers)[3])
            for _ in range(len(ready)):
                if self._alarm is not None:
                    self._count_down()
                handle = ready.popleft()
                callback, context = handle.callback, handle.context
                if callback is None:
                    continue
                try:
                    if context is None:
                        callback(*handle.arguments)
                    else:
                        context.run(callback, *handle.arguments)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001  # the loop's handler reports it, as ever in asyncio
                    self.call_exception_handler({"message": f"Exception in {callback}", "exception": error})

    def _jump(self) -> None:
        """Go to the next timer."""
        timers = self._timers
        while timers and timers[0][3].callback is None:
            heapq.heappop(timers)
        if not timers:
            self._stuck("nothing is ready and no timer is set")
        if timers[0][0] > self.instant:
            self.instant = timers[0][0]

    def _count_down(self) -> None:
        self._steps_left -= 1
        if self._steps_left < 0 and self._alarm is not None:
            alarm, self._alarm = self._alarm, None
            alarm()

    def _write_to_self(self) -> None:
        """Do nothing: the loop never sleeps in a selector, so it needs no wake-up byte."""

    def _stuck(self, why: str) -> NoReturn:
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        lines = "".join(f"\n  {task.get_name()} waits at {_place(task)}" for task in tasks) or "\n  no task is left"
        message = f"Deadlock at {self.instant:.6f} s: {why}.{lines}"
        raise StuckError(message)


class VirtualClock(LoopClock):
    """The clock of a virtual loop. It is asked many times at each instant, and makes one date of it."""

    def __init__(self, *, epoch: datetime = EPOCH) -> None:
        super().__init__(epoch=epoch)
        self._instant = 0.0
        self._date = epoch
        self._loop: VirtualLoop | None = None

    def monotonic(self) -> float:
        if self._loop is None:
            running = asyncio.get_running_loop()
            if not isinstance(running, VirtualLoop):
                raise TypeError("a VirtualClock is for a VirtualLoop")
            self._loop = running
        return self._loop.instant

    def now(self) -> datetime:
        instant = self._loop.instant if self._loop is not None else self.monotonic()
        if instant != self._instant:
            self._instant, self._date = instant, self._epoch + timedelta(seconds=instant)
        return self._date


def run_virtual(main: Coroutine[Any, Any, T], *, seed: int | None = None) -> T:
    """Run a coroutine to its end in virtual time; the same coroutine and seed give the same run."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed=seed)) as runner:
        return runner.run(main)


class _Handle(msgspec.Struct, eq=False):
    """A callback, now or later. asyncio's own is made in Python, and asks the loop each time whether it debugs."""

    callback: Callable[..., object] | None
    arguments: tuple[Any, ...]
    context: contextvars.Context | None
    at: float

    def cancel(self) -> None:
        self.callback = None
        self.arguments = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.at


class _Task(asyncio.Task[Any]):
    # `hash` is asked for inside the constructor of the base class, when the task enters the set of all tasks.
    def __init__(self, coro: Coroutine[Any, Any, Any], *, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


def _place(task: "asyncio.Task[Any]") -> str:
    stack = task.get_stack(limit=1)
    if not stack:
        return "nowhere"
    frame = stack[-1]
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
