"""Brings the synchronous machine and asyncio together: calls that wait, streams of events, and the passing of time."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial

from google.protobuf.message import Message

from klet.aio.clock import Clock, LoopClock
from klet.cri.errors import Code
from klet.testing.fake_runtime.calls import RpcFailure
from klet.testing.fake_runtime.events import FakeEvent
from klet.testing.fake_runtime.machine import FakeRuntime


def gives_up(_rpc: str) -> bool:
    """Drop a call whose caller is gone."""
    return False


@asynccontextmanager
async def pumping(
    runtime: FakeRuntime, clock: Clock, *, lingers: Callable[[str], bool] = gives_up
) -> AsyncIterator["Pump"]:
    """Run a pump as long as the context lasts; then the event streams break."""
    pump = Pump(runtime=runtime, clock=clock, lingers=lingers)
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(pump.run(), name="fake runtime")
            try:
                yield pump
            finally:
                runtime.disconnect()
                task.cancel()
    except BaseExceptionGroup as errors:
        # A test that fails inside should fail with its own error, not with a group of one.
        if len(errors.exceptions) == 1:
            raise errors.exceptions[0] from None
        raise


@contextmanager
def timing(runtime: FakeRuntime, clock: LoopClock, *, lingers: Callable[[str], bool] = gives_up) -> Iterator["Pump"]:
    """Run a pump for a clock that is the loop's own: timers of the loop are cheaper than a task that sleeps."""
    loop = asyncio.get_running_loop()
    started = clock.now() - timedelta(seconds=loop.time())
    timer: asyncio.TimerHandle | None = None

    def set_timer() -> None:
        nonlocal timer
        if timer is not None:
            timer.cancel()
        due = runtime.next_due()
        timer = None if due is None else loop.call_at((due - started).total_seconds(), advance)

    def advance() -> None:
        nonlocal timer
        timer = None
        runtime.pass_time(clock.now())
        if timer is None:
            set_timer()

    pump = Pump(runtime=runtime, clock=clock, lingers=lingers)
    runtime.when_earlier(set_timer)
    set_timer()
    try:
        yield pump
    finally:
        runtime.disconnect()
        runtime.when_earlier(_ignore)
        if timer is not None:
            timer.cancel()


def _ignore() -> None:
    """Do nothing: the runtime's time is no longer driven."""


class Pump:
    """Drives a fake runtime with a clock. `run` must run for calls that take time and for containers to end.

    `lingers` says whether a call goes on in the runtime after its caller has gone.
    """

    def __init__(self, *, runtime: FakeRuntime, clock: Clock, lingers: Callable[[str], bool] = gives_up) -> None:
        self._runtime = runtime
        self._clock = clock
        self._lingers = lingers
        self._nap: asyncio.Timeout | None = None
        self._earlier = asyncio.Event()
        runtime.when_earlier(self._wake)

    async def run(self) -> None:
        while True:
            self._earlier.clear()
            due = self._runtime.next_due()
            if due is None:
                await self._earlier.wait()
            elif due > self._clock.now():
                # A nap ends early when something else becomes due before.
                try:
                    async with asyncio.timeout(None) as self._nap:
                        await self._clock.sleep_until(due)
                except TimeoutError:
                    pass
                finally:
                    self._nap = None
            self._runtime.pass_time(self._clock.now())

    async def call(self, rpc: str, request: Message, *, timeout: timedelta | None = None) -> Message:
        """Return the answer; raises RpcFailure, or TimeoutError by the loop's time. Cancelling gives the call up."""
        loop = asyncio.get_running_loop()
        call = self._runtime.call(rpc, request, now=self._clock.now())
        done: asyncio.Future[None] = loop.create_future()
        deadlines: list[asyncio.TimerHandle] = []
        if call.is_done:
            # Even a call that is done at once lets others run, as any call to a real runtime does.
            loop.call_soon(_set, done)
        else:
            call.when_done(partial(_set, done))
            if timeout is not None:
                at = loop.time() + timeout.total_seconds()
                # Most calls need no more than their latency, and no timer then.
                call.when_slow = lambda: deadlines.append(loop.call_at(at, _expire, done))
                if call.is_slow:
                    call.when_slow()
        try:
            await done
        except (asyncio.CancelledError, TimeoutError):
            if self._lingers(rpc):
                self._runtime.leave(call)
            else:
                self._runtime.give_up(call)
            raise
        finally:
            for deadline in deadlines:
                deadline.cancel()
        return call.result()

    async def events(self, wanted: Callable[[FakeEvent], bool]) -> AsyncGenerator[FakeEvent, None]:
        """Yield the events from now on, until the runtime breaks the stream."""
        queue: asyncio.Queue[FakeEvent | None] = asyncio.Queue()

        def take(event: FakeEvent) -> None:
            if wanted(event):
                queue.put_nowait(event)

        end = self._runtime.listen(take)
        self._runtime.disconnected.listen(lambda: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
        finally:
            end()
        raise RpcFailure(Code.UNAVAILABLE, "the connection was closed")

    def _wake(self) -> None:
        if self._nap is not None and not self._earlier.is_set():
            self._nap.reschedule(0)
        self._earlier.set()


def _set(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _expire(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_exception(TimeoutError())
