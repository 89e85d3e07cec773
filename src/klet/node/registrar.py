"""Registers the node with the API server, or adopts the one that is there (upstream: `registerWithAPIServer`)."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

from klet.aio.backoff import exponential_delays
from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.api.node import Node
from klet.errors import level_for
from klet.kube.errors import AlreadyExists, Forbidden, KubeError
from klet.model.causes import CauseRecorder, Finding
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.roles import Part
from klet.node.board import NodeBoard
from klet.node.composer import Draft
from klet.node.initial_node import adopt_node, build_status_patch
from klet.node.metrics import StartupTimes

logger = logging.getLogger(__name__)

DECIDER: Final = "node.registrar"
FIRST_DELAY: Final = timedelta(milliseconds=100)
LOOK: Final = timedelta(milliseconds=5)
"""How often the first try checks whether the node has become ready; the check stays within the process."""
LONGEST_DELAY: Final = timedelta(seconds=7)
HEAD_START: Final = timedelta(milliseconds=250)
"""How long the other users of the API server let the registration go first."""


class NodeApi(Protocol):
    """Nodes at the API server; raises KubeError."""

    async def get(self, struct: type[Node], name: str) -> Node: ...

    async def create(self, obj: Node) -> Node: ...

    async def patch(self, struct: type[Node], name: str, *, patch: Mapping[str, Any], subresource: str) -> Node: ...


class InitialNodes(Protocol):
    """Makes the node as it would be registered."""

    async def compose_initial(self) -> Draft: ...

    def settle(self, node: Node, findings: Iterable[Finding]) -> tuple[Finding, ...]: ...


class NodeRegistrar:
    """Tries until the node is there. Its client is the main one, not that of the heartbeats."""

    def __init__(
        self,
        *,
        api: NodeApi,
        initial: InitialNodes,
        reset_devices: Callable[[], bool],
        errors: Callable[[], tuple[str, ...]],
        board: NodeBoard,
        times: StartupTimes,
        recorder: CauseRecorder,
        clock: Clock,
    ) -> None:
        self._times = times
        self._api = api
        self._initial = initial
        self._reset_devices = reset_devices
        """Whether no device plugin is remembered: then the devices of an adopted node are out of date."""
        self._errors = errors
        """Why the node is not ready yet, without what follows its registration."""
        self._board = board
        self._recorder = recorder
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock

    async def register(self) -> Node:
        """Register the node; return it as the API server has it. A pause comes before each try."""
        recorded: set[str] = set()
        for tries, delay in enumerate(exponential_delays(first=FIRST_DELAY, longest=LONGEST_DELAY)):
            # Upstream pauses before the first try too. The time is for the runtime's first answers: a node that is
            # ready when it is registered needs no second write, and one that is ready at once need not wait.
            await (self._clock.sleep(delay) if tries else self._until_ready(at_most=delay))
            draft = await self._initial.compose_initial()
            # At every start, also if the node exists: for the agent that starts each condition is new.
            for finding in draft.findings:
                if finding.decision not in recorded:
                    recorded.add(finding.decision)
                    self._recorder.record(finding)
            name = draft.node.metadata.name
            try:
                node = await self._try(draft)
            except KubeError as error:
                extra = {"node": name, "error": str(error)}
                logger.log(level_for(error), "Unable to register node with API server", extra=extra)
            else:
                self._board.put(node)
                return node
        raise AssertionError("there is always another delay")

    async def _until_ready(self, *, at_most: timedelta) -> None:
        give_up = self._clock.monotonic() + at_most.total_seconds()
        while self._errors() and self._clock.monotonic() < give_up:
            await self._clock.sleep(LOOK)

    async def _try(self, draft: Draft) -> Node:
        self._times.note_try()
        try:
            node = await self._api.create(draft.node)
        except (AlreadyExists, Forbidden) as error:
            # A node may be allowed to change its object, but not to create it.
            logger.debug("Node not created", extra={"node": draft.node.metadata.name, "error": str(error)})
            return await self._adopt(draft.node)
        self._times.note_new()
        self._initial.settle(node, ())
        self._record(Reason.NODE_REGISTERED, "the API server had no node of this name")
        return node

    async def _adopt(self, initial: Node) -> Node:
        name = initial.metadata.name
        existing = await self._api.get(Node, name)
        adopted = adopt_node(existing, initial, reset_devices=self._reset_devices())
        if patch := build_status_patch(existing, adopted):
            existing = await self._api.patch(Node, name, patch=patch, subresource="status")
        self._record(Reason.NODE_ADOPTED, "the API server has a node of this name")
        return existing

    def _record(self, decision: Reason, message: str) -> None:
        logger.info(message, extra={"decision": str(decision)})
        self._decisions.for_node().record(decision, message, next_step="report its status")


class AfterRegistration:
    """Starts parts once the node is registered: a dozen new connections at the same moment would slow it down."""

    def __init__(self, *, parts: Sequence[Part], board: NodeBoard, clock: Clock) -> None:
        self._parts = parts
        self._board = board
        self._clock = clock

    async def run(self) -> None:
        await first_of(self._board.until_known(), self._clock.sleep(HEAD_START))
        async with asyncio.TaskGroup() as group:
            for part in self._parts:
                group.create_task(part.run(), name=type(part).__name__)
