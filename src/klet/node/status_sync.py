"""One pass of reporting the node's status to the API server: compute, compare, patch (upstream: `updateNodeStatus`)."""

import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from enum import Enum, auto
from typing import Any, Final, Protocol

from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.node import Node
from klet.errors import level_for
from klet.kube.errors import KubeError, NotFound
from klet.kube.watch import WATCH_LAG
from klet.model.causes import CauseRecorder, Finding
from klet.node.board import NodeBoard, newer_of
from klet.node.composer import Draft
from klet.node.conditions import is_ready
from klet.node.initial_node import build_status_patch
from klet.node.settings import ReportTimes

logger = logging.getLogger(__name__)

TRIES: Final = 5
START_PATIENCE: Final = timedelta(seconds=2)
"""So long after its start the agent does not report a ready node as not ready: its checks have hardly run."""


class StatusApi(Protocol):
    """The node at the API server; raises KubeError."""

    async def get(self, struct: type[Node], name: str) -> Node: ...

    async def patch(self, struct: type[Node], name: str, *, patch: Mapping[str, Any], subresource: str) -> Node: ...


class SeenNodes(Protocol):
    """What the watch has shown."""

    def get(self, name: str) -> Node | None: ...


class Composer(Protocol):
    """Composes the node's object."""

    async def compose(self, original: Node) -> Draft: ...

    def settle(self, node: Node, findings: Iterable[Finding]) -> tuple[Finding, ...]: ...


class Heartbeats(Struct, frozen=True):
    """How the node is kept alive: a client without limits, and what to do when that fails again and again."""

    api: StatusApi
    on_failure: Callable[[], Awaitable[None]]


class StatusOutcome(Enum):
    """The result of a pass."""

    POSTED = auto()
    UNCHANGED = auto()
    HELD = auto()
    """The node would have become not ready, too early after the start to be believed."""
    FAILED = auto()


class StatusSync:
    """Keeps the node's status true at the API server, one pass at a time."""

    def __init__(
        self,
        *,
        heartbeats: Heartbeats,
        seen: SeenNodes,
        composer: Composer,
        board: NodeBoard,
        recorder: CauseRecorder,
        clock: Clock,
        times: ReportTimes,
        randomness: random.Random,
    ) -> None:
        self._heartbeats = heartbeats
        self._seen = seen
        self._composer = composer
        self._board = board
        self._recorder = recorder
        self._clock = clock
        self._times = times
        self._randomness = randomness
        # On the clock that never steps: a machine may set its time while it starts.
        self._began: float | None = None
        self._reported_at: float | None = None
        self._delay = timedelta()

    async def sync(self, name: str) -> StatusOutcome:
        """Compute the status and send it if it has changed or is due; several tries, one right after the other."""
        self._began = self._clock.monotonic() if self._began is None else self._began
        pending: dict[str, Finding] = {}
        last: KubeError | None = None
        for attempt in range(TRIES):
            try:
                return await self._try(name, pending, ask=attempt > 0)
            except KubeError as error:
                last = error
                extra = {"node": name, "error": str(error)}
                logger.log(level_for(error), "Error updating node status, will retry", extra=extra)
                if attempt > 0:
                    await self._heartbeats.on_failure()
        extra = {"error": "update node status exceeds retry count"}
        logger.log(level_for(last, logging.ERROR), "Unable to update node status", extra=extra)
        return StatusOutcome.FAILED

    async def _try(self, name: str, pending: dict[str, Finding], *, ask: bool) -> StatusOutcome:
        original = await self._read(name, ask=ask)
        draft = await self._composer.compose(original)
        # A patch whose answer was lost has been applied: the next try finds no change, but must record the findings.
        pending.update({finding.decision: finding for finding in draft.findings})
        if self._must_hold(draft):
            return StatusOutcome.HELD
        if not draft.is_changed and not self._is_due():
            self._settle(original, pending)
            return StatusOutcome.UNCHANGED
        self._delay = self._choose_delay(is_changed=draft.is_changed)
        posted = await self._post(draft, name)
        self._reported_at = self._clock.monotonic()
        self._settle(posted, pending)
        return StatusOutcome.POSTED

    async def _post(self, draft: Draft, name: str) -> Node:
        patch = build_status_patch(draft.original, draft.node)
        if not patch:
            return draft.original
        try:
            return await self._heartbeats.api.patch(Node, name, patch=patch, subresource="status")
        except NotFound:
            self._board.forget()
            raise

    async def _read(self, name: str, *, ask: bool) -> Node:
        seen, own = self._seen.get(name), self._board.node
        known = None if ask or self._is_doubtful(seen, own) else newer_of(seen, own)
        return await self._heartbeats.api.get(Node, name) if known is None else known

    def _is_doubtful(self, seen: Node | None, own: Node | None) -> bool:
        """Return whether the watch had time to show our newest version, and does not."""
        if seen is None or own is None or newer_of(seen, own) is seen:
            return False
        newest = max(self._began or 0.0, self._reported_at or 0.0)
        return self._since(newest) > WATCH_LAG

    def _settle(self, node: Node, pending: Mapping[str, Finding]) -> None:
        for finding in self._composer.settle(node, pending.values()):
            self._recorder.record(finding)
        self._board.put(node)

    def _must_hold(self, draft: Draft) -> bool:
        is_early = self._began is not None and self._since(self._began) < START_PATIENCE
        stops = is_ready(draft.original.status.conditions) and not is_ready(draft.node.status.conditions)
        return stops and is_early and self._reported_at is None

    def _is_due(self) -> bool:
        if self._reported_at is None:
            return True
        return self._since(self._reported_at) >= self._times.report + self._delay

    def _since(self, instant: float) -> timedelta:
        return timedelta(seconds=self._clock.monotonic() - instant)

    def _choose_delay(self, *, is_changed: bool) -> timedelta:
        """Spread the reports of nodes that changed together."""
        if is_changed or self._reported_at is None:
            return self._times.report * self._randomness.uniform(-0.5, 0.5)
        return timedelta()
