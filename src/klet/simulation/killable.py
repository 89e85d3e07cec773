"""Ports of an agent that can be killed at any of its awaits: from then on nothing it does has an effect."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Protocol

from google.protobuf.message import Message

from klet.cri.connection import CriTransport
from klet.testing.loop import VirtualLoop
from klet.wire.methods import Method, RequestT, ResponseT


class Observer(Protocol):
    """Sees every call that reaches the runtime, and that it has ended."""

    def before(self, rpc: str, request: Message) -> None: ...

    def after(self, rpc: str, request: Message) -> None: ...


class KillSwitch:
    """Kills an agent: at a call, or anywhere between two steps of its tasks."""

    def __init__(self) -> None:
        self.killed = asyncio.Event()
        self._calls_left: int | None = None
        self._after_effect = False

    def kill_at_call(self, *, calls: int, after_effect: bool) -> None:
        """Kill the agent at one of its next calls."""
        self._calls_left = calls
        self._after_effect = after_effect
        if calls <= 0:
            self.killed.set()

    def kill_after_steps(self, loop: VirtualLoop, steps: int) -> None:
        """Kill the agent when that many callbacks have run, wherever its tasks wait then."""
        loop.after_steps(steps, self.killed.set)

    def disarm(self, loop: VirtualLoop) -> None:
        """Cancel a kill that has not happened yet."""
        self._calls_left = None
        loop.no_alarm()

    async def before_call(self) -> bool:
        """Count a call; return True if the agent is killed between the call's effect and its answer."""
        if self.killed.is_set():
            await self.wait_if_killed()
        if self._calls_left is None:
            return False
        self._calls_left -= 1
        if self._calls_left != 0:
            return False
        if self._after_effect:
            return True
        await self.kill()
        return False

    async def kill(self) -> None:
        self.killed.set()
        await self.wait_if_killed()

    async def wait_if_killed(self) -> None:
        """Return if the agent runs; if it was killed, wait until its tasks are cancelled."""
        if self.killed.is_set():
            await asyncio.get_running_loop().create_future()


class KillableTransport:
    """The calls of one run of the agent."""

    def __init__(self, *, inner: CriTransport, kill_switch: KillSwitch, observer: Observer) -> None:
        self._inner = inner
        self._kill_switch = kill_switch
        self._observer = observer

    @property
    def endpoint(self) -> str:
        return self._inner.endpoint

    async def call(
        self, method: Method[RequestT, ResponseT], request: RequestT, *, timeout: timedelta | None
    ) -> ResponseT:
        is_killed_after = await self._kill_switch.before_call()
        self._observer.before(method.name, request)
        try:
            answer = await self._inner.call(method, request, timeout=timeout)
        finally:
            self._observer.after(method.name, request)
        if is_killed_after:
            await self._kill_switch.kill()
        return answer

    def stream(self, method: Method[RequestT, ResponseT], request: RequestT) -> AsyncGenerator[ResponseT, None]:
        return self._inner.stream(method, request)
