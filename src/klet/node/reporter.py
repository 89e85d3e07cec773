"""Decides when the node's status is reported: at once after a change, and periodically
(upstream: `syncNodeStatus`, `fastStatusUpdateOnce`).
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import Any, Final, Protocol

from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.api.node import Node
from klet.model.error_text import join_errors
from klet.node.conditions import is_ready
from klet.node.settings import ReportTimes
from klet.node.status_sync import START_PATIENCE, StatusOutcome

logger = logging.getLogger(__name__)

JITTER: Final = 0.04
LOOK: Final = timedelta(milliseconds=100)
"""How often a node that is not ready checks whether its errors changed; the check stays within the process."""
READY_WITHIN: Final = timedelta(minutes=2)
"""A node that is not ready after so long is no longer starting."""


class Registrar(Protocol):
    """Registers the node with the API server."""

    async def register(self) -> Node: ...


class Sync(Protocol):
    """Reports the status once."""

    async def sync(self, name: str) -> StatusOutcome: ...


class KnownNode(Protocol):
    """The node as it was last read or written."""

    @property
    def node(self) -> Node | None: ...


class Hints(Protocol):
    """A subscription to changes."""

    async def get(self) -> object: ...

    def drain(self) -> Sequence[object]: ...

    def close(self) -> None: ...


class NodeWatch(Protocol):
    """The node's own object, as the watch shows it."""

    def get(self, name: str) -> Node | None: ...

    def changes(self) -> Hints: ...


class StatusReporter:
    """Registers the node if configured, then keeps its status reported."""

    def __init__(
        self,
        *,
        name: str,
        registrar: Registrar | None,
        sync: Sync,
        nodes: NodeWatch,
        wakes: Sequence[Callable[[], Hints]],
        known: KnownNode,
        errors: Callable[[], tuple[str, ...]],
        timer: "ReportTimer",
    ) -> None:
        self._name = name
        self._registrar = registrar
        """None if klet does not register the node (registerNode: false)."""
        self._sync = sync
        self._nodes = nodes
        self._wakes = wakes
        """Sources of changes that belong into the status."""
        self._known = known
        self._errors = errors
        self._timer = timer
        self._woken = asyncio.Event()
        self._has_been_ready = False
        self._is_late = False

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_node(), name="node-changes")
            for number, wake in enumerate(self._wakes):
                group.create_task(self._follow(wake), name=f"node-wake-{number}")
            group.create_task(self._report(), name="node-status")

    def wake(self) -> None:
        """Report now: something has changed."""
        self._woken.set()

    async def _report(self) -> None:
        if self._registrar is not None:
            await self._registrar.register()
        while True:
            self._woken.clear()
            errors = self._errors()
            outcome = await self._sync.sync(self._name)
            waits: list[Coroutine[Any, Any, object]] = [
                self._woken.wait(),
                self._timer.pause(is_held=outcome is StatusOutcome.HELD),
            ]
            if outcome is StatusOutcome.HELD or self._is_starting():
                waits.append(self._timer.until(partial(self._has_changed, errors)))
            await first_of(*waits)

    def _has_changed(self, errors: tuple[str, ...]) -> bool:
        return self._errors() != errors

    def _is_starting(self) -> bool:
        node = self._known.node
        if node is not None and is_ready(node.status.conditions):
            self._has_been_ready = True
            return False
        if self._has_been_ready or self._is_late:
            return False
        if self._timer.is_early():
            return True
        self._is_late = True
        logger.error("Node not becoming ready in time after startup", extra={"error": join_errors(self._errors())})
        return False

    async def _follow(self, subscribe: Callable[[], Hints]) -> None:
        with closing(subscribe()) as hints:
            while True:
                await hints.get()
                hints.drain()
                self.wake()

    async def _follow_node(self) -> None:
        """Wake only for fields that others write and the status depends on: most changes are our own."""
        before = self._essence()
        with closing(self._nodes.changes()) as hints:
            while True:
                await hints.get()
                hints.drain()
                if (now := self._essence()) != before:
                    before = now
                    self.wake()

    def _essence(self) -> tuple[str, tuple[str, ...], bool] | None:
        node = self._nodes.get(self._name)
        return None if node is None else (node.metadata.uid, node.spec.pod_cidrs, node.spec.unschedulable)


class ReportTimer:
    """Decides how long the reporter waits between passes."""

    def __init__(self, *, times: ReportTimes, clock: Clock, randomness: random.Random) -> None:
        self._times = times
        self._clock = clock
        self._randomness = randomness
        self._began = clock.monotonic()

    def is_early(self) -> bool:
        return self._clock.monotonic() - self._began < READY_WITHIN.total_seconds()

    async def pause(self, *, is_held: bool) -> None:
        """Wait until the next periodic pass; one that was held back is retried as soon as it may go out."""
        wanted = START_PATIENCE if is_held else self._times.update * (1 + JITTER * self._randomness.random())
        await self._clock.sleep(wanted)

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._clock.sleep(LOOK)
