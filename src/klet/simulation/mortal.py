"""Ports of an agent that can die at any of its awaits: from that instant nothing it does has an effect any more."""

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


class Lifeline:
    """Whether an agent still lives, and when it dies: at a call, or anywhere between two steps of its tasks."""

    def __init__(self) -> None:
        self.died = asyncio.Event()
        self._calls_left: int | None = None
        self._after_effect = False

    def doom(self, *, calls: int, after_effect: bool) -> None:
        """Let it die at one of its next calls."""
        self._calls_left = calls
        self._after_effect = after_effect
        if calls <= 0:
            self.died.set()

    def doom_after_steps(self, loop: VirtualLoop, steps: int) -> None:
        """Let it die when that many callbacks have run, wherever its tasks wait then."""
        loop.after_steps(steps, self.died.set)

    def spare(self, loop: VirtualLoop) -> None:
        """Let it live after all."""
        self._calls_left = None
        loop.no_alarm()

    async def before_call(self) -> bool:
        """Count a call; True when the agent dies between the call's effect and its answer."""
        if self.died.is_set():
            await self.stay()
        if self._calls_left is None:
            return False
        self._calls_left -= 1
        if self._calls_left != 0:
            return False
        if self._after_effect:
            return True
        await self.die()
        return False

    async def die(self) -> None:
        self.died.set()
        await self.stay()

    async def stay(self) -> None:
        """Return while alive. The dead wait for their burial: the cancellation of their tasks."""
        if self.died.is_set():
            await asyncio.get_running_loop().create_future()


class MortalTransport:
    """Calls of one life of the agent."""

    def __init__(self, *, inner: CriTransport, lifeline: Lifeline, observer: Observer) -> None:
        self._inner = inner
        self._lifeline = lifeline
        self._observer = observer

    @property
    def endpoint(self) -> str:
        return self._inner.endpoint

    async def call(
        self, method: Method[RequestT, ResponseT], request: RequestT, *, timeout: timedelta | None
    ) -> ResponseT:
        dies_after = await self._lifeline.before_call()
        self._observer.before(method.name, request)
        try:
            answer = await self._inner.call(method, request, timeout=timeout)
        finally:
            self._observer.after(method.name, request)
        if dies_after:
            await self._lifeline.die()
        return answer

    def stream(self, method: Method[RequestT, ResponseT], request: RequestT) -> AsyncGenerator[ResponseT, None]:
        return self._inner.stream(method, request)
