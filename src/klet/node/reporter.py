"""Says when the node's status is told: at once when something has changed, and now and then without a reason
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
from klet.node.status_sync import START_PATIENCE, Outcome

logger = logging.getLogger(__name__)

JITTER: Final = 0.04
LOOK: Final = timedelta(milliseconds=100)
"""How often a node that is not ready yet looks for what keeps it; that costs nothing outside of the process."""
READY_WITHIN: Final = timedelta(minutes=2)
"""A node that is not ready after so long is no longer starting."""


class Registrar(Protocol):
    """Brings the node into the API."""

    async def register(self) -> Node: ...


class Sync(Protocol):
    """Tells the status once."""

    async def sync(self, name: str) -> Outcome: ...


class KnownNode(Protocol):
    """The node as it was last read or written."""

    @property
    def node(self) -> Node | None: ...


class Hints(Protocol):
    """Changes that somebody sends."""

    async def get(self) -> object: ...

    def drain(self) -> Sequence[object]: ...

    def close(self) -> None: ...


class FollowedNode(Protocol):
    """The node's own object, as the watch shows it."""

    def get(self, name: str) -> Node | None: ...

    def changes(self) -> Hints: ...


class StatusReporter:
    """Registers the node if it should, then keeps its status told."""

    def __init__(
        self,
        *,
        name: str,
        registrar: Registrar | None,
        sync: Sync,
        nodes: FollowedNode,
        wakes: Sequence[Callable[[], Hints]],
        known: KnownNode,
        errors: Callable[[], tuple[str, ...]],
        pace: "Pace",
    ) -> None:
        self._name = name
        self._registrar = registrar
        """None: somebody else makes the node (registerNode: false)."""
        self._sync = sync
        self._nodes = nodes
        self._wakes = wakes
        """Where a change may come from that the status tells."""
        self._known = known
        self._errors = errors
        self._pace = pace
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
        """Something has changed: tell it now."""
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
                self._pace.pause(is_held=outcome is Outcome.HELD),
            ]
            if outcome is Outcome.HELD or self._is_starting():
                waits.append(self._pace.until(partial(self._has_changed, errors)))
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
        if self._pace.is_early():
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
        """Only what others write and the status depends on is worth a pass: most changes are our own."""
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


class Pace:
    """How long the reporter waits."""

    def __init__(self, *, times: ReportTimes, clock: Clock, randomness: random.Random) -> None:
        self._times = times
        self._clock = clock
        self._randomness = randomness
        self._began = clock.monotonic()

    def is_early(self) -> bool:
        return self._clock.monotonic() - self._began < READY_WITHIN.total_seconds()

    async def pause(self, *, is_held: bool) -> None:
        """Until the next pass that needs no reason; one that was held back comes again when it may."""
        wanted = START_PATIENCE if is_held else self._times.update * (1 + JITTER * self._randomness.random())
        await self._clock.sleep(wanted)

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._clock.sleep(LOOK)
