"""Keeps the registered plugins like the registration sockets (upstream: the reconciler and the operation executor).

Upstream looks each second. Here a socket that comes or goes, and the end of an operation, are what begins a pass.
"""

import asyncio
import logging
from collections.abc import Coroutine
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from msgspec import Struct

from klet.aio.backoff import Backoff
from klet.aio.clock import Clock
from klet.model.foreign_text import shorten
from klet.plugins.boards import DesiredPlugin, DesiredPlugins, RegisteredPlugins, SocketIdentity
from klet.plugins.errors import PluginError
from klet.plugins.operations import PluginOperations
from klet.plugins.reconcile import plan_registry
from klet.plugins.watcher import RegistryWatcher

logger = logging.getLogger(__name__)

FIRST_DELAY: Final = timedelta(milliseconds=500)
LONGEST_DELAY: Final = timedelta(minutes=2, seconds=2)


class _Running(Struct, frozen=True):
    """What is being done for a socket."""

    task: asyncio.Task[None]
    registers: SocketIdentity | None
    """None: it is being unregistered."""


class PluginManager:
    """Has at most one operation for each socket, and lets one that failed wait before the next."""

    def __init__(
        self,
        *,
        watcher: RegistryWatcher,
        desired: DesiredPlugins,
        registered: RegisteredPlugins,
        operations: PluginOperations,
        clock: Clock,
    ) -> None:
        self._watcher = watcher
        self._desired = desired
        self._registered = registered
        self._operations = operations
        self._clock = clock
        self._backoff = Backoff[str](first=FIRST_DELAY, longest=LONGEST_DELAY)
        self._running: dict[str, _Running] = {}
        self._woken = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watcher.run(), name="plugin-watcher")
            group.create_task(self._follow(), name="plugin-changes")
            while True:
                self._woken.clear()
                due = self._begin(group)
                if due is None:
                    await self._woken.wait()
                else:
                    await self._clock.wait(self._woken.wait(), at_most=max(due - self._clock.now(), timedelta()))

    async def _follow(self) -> None:
        with self._desired.changes() as changes:
            self._woken.set()
            async for _ in changes:
                self._woken.set()

    def _begin(self, group: asyncio.TaskGroup) -> datetime | None:
        """Begin what can be done now; return when something that waits may be tried again."""
        desired, now = self._desired.all(), self._clock.now()
        self._end_outdated()
        plan = plan_registry(desired, self._registered.all())
        waits: list[datetime] = []
        for gone in plan.unregister:
            if self._may_begin(gone.socket, waits, now=now):
                self._start(group, gone.socket, self._operations.unregister(gone), registers=None)
        for new in plan.register:
            if self._may_begin(new.socket, waits, now=now):
                self._start(group, new.socket, self._operations.register(new), registers=new.identity)
        self._backoff.collect(now=now)
        return min(waits, default=None)

    def _end_outdated(self) -> None:
        """Cancel registrations of sockets that have gone or were made again: nobody is served by their end."""
        desired = self._desired.all()
        for socket, running in self._running.items():
            is_wanted = running.registers is None or _is(desired.get(socket), running.registers)
            if not is_wanted and not running.task.cancelling():
                running.task.cancel()

    def _may_begin(self, socket: str, waits: list[datetime], *, now: datetime) -> bool:
        if socket in self._running:
            return False
        if (until := self._backoff.waiting_until(socket, now=now)) is not None:
            waits.append(until)
            return False
        return True

    def _start(
        self,
        group: asyncio.TaskGroup,
        socket: str,
        operation: Coroutine[Any, Any, None],
        *,
        registers: SocketIdentity | None,
    ) -> None:
        task = group.create_task(self._operate(socket, operation), name=f"plugin-{socket}")
        self._running[socket] = _Running(task, registers)
        task.add_done_callback(partial(self._note_end, socket, operation))

    async def _operate(self, socket: str, operation: Coroutine[Any, Any, None]) -> None:
        try:
            await operation
        except PluginError as error:
            delay = self._backoff.next(socket, now=self._clock.now())
            extra = {"path": socket, "error": shorten(str(error)), "delay": delay.total_seconds()}
            logger.warning("Plugin operation failed", extra=extra)
        else:
            self._backoff.reset(socket)

    def _note_end(self, socket: str, operation: Coroutine[Any, Any, None], _task: asyncio.Task[None]) -> None:
        operation.close()  # it has not begun if its task was cancelled before
        del self._running[socket]
        self._woken.set()


def _is(plugin: DesiredPlugin | None, identity: SocketIdentity) -> bool:
    return plugin is not None and plugin.identity == identity
