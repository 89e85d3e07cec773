"""Faults of the machine itself: its files, its cgroups, its disks fail, or take their time, for a while."""

import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from msgspec import Struct

from klet.aio.clock import Clock
from klet.errors import KletError

T = TypeVar("T")


class FailCall(Struct, frozen=True):
    """The call fails: before its effect, or after it."""

    after_effect: bool = False


class TakeLong(Struct, frozen=True):
    """The call takes so much longer."""

    by: timedelta


HostEffect: TypeAlias = FailCall | TakeLong


class HostFault(Struct, eq=False):
    """The next calls of one port go wrong."""

    port: str
    effect: HostEffect
    count: int
    hits: int = 0


class CallGate(Protocol):
    """Where every call of a running agent passes, and no call of a killed one."""

    async def before_call(self) -> bool:
        """Return True when the agent is killed between the call's effect and its answer."""
        ...

    async def kill(self) -> None: ...


class HostFaults:
    """The faults in force. They outlive the agent."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._faults: list[HostFault] = []

    def add(self, fault: HostFault) -> HostFault:
        self._faults.append(fault)
        return fault

    def clear(self) -> None:
        self._faults.clear()

    def take(self, port: str) -> HostFault | None:
        for fault in self._faults:
            if fault.port == port and fault.hits < fault.count:
                fault.hits += 1
                return fault
        return None

    def wrap(self, port: T, name: str, *, gate: CallGate, error: Callable[[str], KletError]) -> T:
        """Return the port as one life of the agent has it: each call that waits may fail, be late, or be its last."""
        return cast("T", _Wrapped(self, port, name, gate, error))

    async def call(
        self, name: str, call: Callable[[], Awaitable[Any]], *, gate: CallGate, error: Callable[[str], KletError]
    ) -> Any:
        dies_after = await gate.before_call()
        fault = self.take(name)
        if fault is None:
            answer = await call()
            if dies_after:
                await gate.kill()
            return answer
        effect = fault.effect
        if isinstance(effect, TakeLong):
            await self._clock.sleep(effect.by)
            await gate.before_call()
        if isinstance(effect, FailCall) and not effect.after_effect:
            raise error("injected fault")
        answer = await call()
        if dies_after:
            await gate.kill()
        if isinstance(effect, FailCall):
            raise error("injected fault after the effect")
        return answer


class _Wrapped:
    def __init__(
        self, faults: HostFaults, port: object, name: str, gate: CallGate, error: Callable[[str], KletError]
    ) -> None:
        self._faults = faults
        self._port = port
        self._name = name
        self._gate = gate
        self._error = error

    def __getattr__(self, attribute: str) -> Any:
        inner = getattr(self._port, attribute)
        if not inspect.iscoroutinefunction(inner):
            return inner

        async def call(*args: Any, **options: Any) -> Any:
            return await self._faults.call(
                self._name, lambda: inner(*args, **options), gate=self._gate, error=self._error
            )

        setattr(self, attribute, call)
        return call
