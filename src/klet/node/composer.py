"""Composes the node's object from the existing one and the inputs of its status."""

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from klet.api.node import Node, NodeCondition, NodeStatus
from klet.model.causes import Finding
from klet.model.reasons import Reason
from klet.model.roles import PodCidrUpdater
from klet.node.initial_node import build_initial_node, repair_labels
from klet.node.settings import NodeSettings
from klet.node.status import compose_status
from klet.node.status_inputs import StatusInputs

logger = logging.getLogger(__name__)


class InputsReader(Protocol):
    """Reads what a status is computed from."""

    async def read(self, node: Node) -> StatusInputs: ...


class Draft(Struct, frozen=True):
    """A node as it should become. Its findings are recorded once it is settled."""

    original: Node
    node: Node
    is_changed: bool
    findings: tuple[Finding, ...]


class NodeComposer:
    """Composes nodes, and remembers what has been recorded."""

    def __init__(
        self,
        *,
        inputs: InputsReader,
        cidrs: PodCidrUpdater,
        reported_in_use: Callable[[Iterable[str]], None],
        settings: NodeSettings,
    ) -> None:
        self._inputs = inputs
        self._cidrs = cidrs
        self._reported_in_use = reported_in_use
        """Called with the volumes that the API server knows as in use: now a controller leaves them attached."""
        self._settings = settings
        self._was_unschedulable = False
        self._recorded_reboot = False
        self._problems: tuple[str, ...] = ()

    async def compose_initial(self) -> Draft:
        """Return the node as it would be registered."""
        initial = build_initial_node(self._settings)
        return await self._compose(initial, initial)

    async def compose(self, original: Node) -> Draft:
        """Return the existing node as it should be now. New pod CIDRs count as a change."""
        has_new_cidrs = await self._cidrs.apply(original.spec.pod_cidrs)
        repaired = repair_labels(original, self._settings)
        draft = await self._compose(original, repaired)
        is_changed = has_new_cidrs or repaired is not original or has_changed(original.status, draft.node.status)
        return Draft(original, draft.node, is_changed, draft.findings)

    def settle(self, node: Node, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """Accept the node as reported; return the findings to record. A reboot is recorded once per run."""
        self._was_unschedulable = node.spec.unschedulable
        self._reported_in_use(node.status.volumes_in_use)
        new = tuple(each for each in findings if each.decision != Reason.REBOOTED or not self._recorded_reboot)
        self._recorded_reboot = self._recorded_reboot or any(each.decision == Reason.REBOOTED for each in new)
        return new

    async def _compose(self, original: Node, node: Node) -> Draft:
        seen = await self._inputs.read(node)
        composed = compose_status(node, seen, self._settings, was_unschedulable=self._was_unschedulable)
        if composed.problems != self._problems:
            self._problems = composed.problems
            for problem in composed.problems:
                logger.warning("Failed to set some node status fields", extra={"error": problem})
        return Draft(original, composed.node, is_changed=True, findings=composed.findings)


def has_changed(before: NodeStatus, after: NodeStatus) -> bool:
    """Return whether a status differs in more than its heartbeats and the order of its conditions."""
    if _without_heartbeats(before.conditions) != _without_heartbeats(after.conditions):
        return True
    return replace(before, conditions=()) != replace(after, conditions=())


def _without_heartbeats(conditions: tuple[NodeCondition, ...]) -> dict[str, NodeCondition]:
    return {condition.type: replace(condition, last_heartbeat_time=None) for condition in conditions}
