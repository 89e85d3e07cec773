"""An event loop with virtual time, for simulations that replay exactly.

No selector, no sockets, no threads: when nothing is ready, time jumps to the next timer. Nothing ready and no timer is
a deadlock, and is reported with the place where each task waits. Tasks and futures hash by their order of creation,
because asyncio keeps them in sets, and sets ordered by address would differ from run to run.
"""

import asyncio
import contextvars
import heapq
import random
from asyncio import base_events, events
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from klet.errors import KletError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# The wall time at which virtual time zero lies, for LoopClock(epoch=EPOCH).
EPOCH = datetime(2030, 1, 1, tzinfo=UTC)

# Passes of the loop at one instant before it counts as going round in circles.
_MAX_PASSES_AT_ONE_INSTANT = 20_000


class StuckError(KletError):
    """The simulation cannot go on: nobody will ever wake, or time never moves again."""


class VirtualLoop(base_events.BaseEventLoop):
    """Runs callbacks in a fixed order and jumps over waiting times.

    With a seed, timers that are due at the same instant fire in an order drawn from it; without, in the order of
    creation.
    """

    _scheduled: "list[_Timer]"

    def __init__(self, *, seed: int | None = None) -> None:
        super().__init__()
        self._virtual_now = 0.0
        self._passes = 0
        self._created = 0
        self._ties = None if seed is None else random.Random(seed)
        self._selector = self
        # A timer may fire this much early. It must be less than any step of time, or a task that sleeps again and again
        # until an instant just ahead would never get there.
        self._clock_resolution = 1e-7
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        return self._virtual_now

    def next_number(self) -> int:
        """A number that is unique on this loop and the same in each replay."""
        self._created += 1
        return self._created

    def create_future(self) -> "asyncio.Future[Any]":
        return _Future(loop=self)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        timer = _Timer(when, callback, args, self, context)
        timer.tie = (self._ties.random() if self._ties else 0.0, self.next_number())
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer

    def run_in_executor(self, _executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
        """Call at once, on the loop: threads would make the order a matter of luck."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  # handed to the caller through the future
            future.set_exception(error)
        return future

    def select(self, timeout: float | None) -> list[object]:
        """Called by the base class where a real loop would wait for sockets."""
        if timeout is None:
            self._stuck("nothing is ready and no timer is set")
        if timeout > 0:
            self._virtual_now = max(self._virtual_now, min(self._scheduled[0]._when, self._virtual_now + timeout))
            self._passes = 0
        self._passes += 1
        if self._passes > _MAX_PASSES_AT_ONE_INSTANT:
            self._stuck("time stands still, tasks keep waking each other")
        return []

    def _process_events(self, event_list: list[object]) -> None:
        """There is nothing to process: `select` never reports a socket."""

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector, so nobody needs a wake-up byte."""

    def _make_task(self, _loop: events.AbstractEventLoop, coro: Any, **options: Any) -> "asyncio.Task[Any]":
        number = self._created + 1
        task = _Task(coro, loop=self, **options)
        if task.get_name().startswith("Task-"):
            # The default names count through the whole process; a replay needs them to start over with the loop.
            task.set_name(f"Task-{number}")
        return task

    def _stuck(self, why: str) -> NoReturn:
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        lines = "".join(f"\n  {task.get_name()} waits at {_place(task)}" for task in tasks) or "\n  no task is left"
        message = f"Deadlock at {self._virtual_now:.6f} s: {why}.{lines}"
        raise StuckError(message)


def run_virtual(main: Coroutine[Any, Any, T], *, seed: int | None = None) -> T:
    """Run a coroutine to its end in virtual time; the same coroutine and seed give the same run."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed=seed)) as runner:
        return runner.run(main)


class _Timer(events.TimerHandle):
    """A timer with a fixed place among those of the same instant."""

    __slots__ = ("tie",)
    tie: tuple[float, int]
    _when: float
    _scheduled: bool

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, _Timer):
            return NotImplemented
        if self._when != other._when:
            return self._when < other._when
        return self.tie < other.tie


class _Future(asyncio.Future[Any]):
    def __init__(self, *, loop: VirtualLoop) -> None:
        super().__init__(loop=loop)
        self._number = loop.next_number()

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[Any]):
    # `hash` is asked for inside the constructor of the base class, when the task enters the set of all tasks.
    def __init__(self, coro: Coroutine[Any, Any, Any], *, loop: VirtualLoop, **options: Any) -> None:
        self._number = loop.next_number()
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number


def _place(task: "asyncio.Task[Any]") -> str:
    stack = task.get_stack(limit=1)
    if not stack:
        return "nowhere"
    frame = stack[-1]
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
