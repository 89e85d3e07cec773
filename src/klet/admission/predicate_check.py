"""The admission handler that compares a pod with the Node and with the other pods (predicateAdmitHandler)."""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from klet.admission.loads import PodLoads
from klet.admission.predicates import (
    NO_NODE,
    Failure,
    PredicateRules,
    decide_fit,
    find_failures,
    find_impossible,
    needs_fresh_node,
    with_own_system,
)
from klet.admission.resource_fit import ResourceDemand, compare_resources, compute_requested
from klet.api.node import Node
from klet.api.pod import Pod
from klet.errors import KletError
from klet.model.pod_resources import compute_resource_request
from klet.model.roles import Allocations
from klet.model.verdicts import Verdict

logger = logging.getLogger(__name__)


class AdmittingNode(Protocol):
    """The Node that pods are checked against."""

    def known(self) -> Node | None:
        """Return it as it was last seen; None if nothing is known of it."""
        ...

    async def fetch(self) -> Node:
        """Return it as the API server has it now, or without one as `known` does. Raises KletError."""
        ...


class Comparison(Struct, frozen=True):
    """A pod beside the Node and the other pods."""

    demands: tuple[ResourceDemand, ...]
    """What it demands of the node; none if it could never run here."""
    failures: tuple[Failure, ...]
    """Everything that speaks against it."""


class PredicateCheck:
    """Rejects pods for which the node is not made or has no room, and makes room for critical ones."""

    def __init__(
        self,
        *,
        node: AdmittingNode,
        rules: Callable[[], PredicateRules],
        loads: PodLoads,
        allocations: Allocations,
    ) -> None:
        self._node = node
        self._rules = rules
        self._loads = loads
        self._allocations = allocations

    async def admit(self, pod: Pod, others: Sequence[Pod]) -> Verdict:
        found = await self.compare(pod, others)
        return self.decide(pod, found.failures, others)

    def decide(self, pod: Pod, failures: Sequence[Failure], others: Sequence[Pod]) -> Verdict:
        """Return what follows from the failures that were found."""
        return decide_fit(pod, failures, others, self._request)

    async def compare(self, pod: Pod, others: Sequence[Pod]) -> Comparison:
        """Compare the pod with everything. Nothing is changed."""
        node, rules = self._node.known(), self._rules()
        if node is None:
            return Comparison((), (NO_NODE,))
        impossible = find_impossible(pod, has_groups_policy=rules.has_groups_policy)
        if impossible is not None:
            return Comparison((), (impossible,))
        node = with_own_system(node)
        requested = compute_requested(self._allocations.of(pod), node.status.allocatable)
        used = self._loads.sum_up(others)

        def compare_with(node: Node) -> Comparison:
            demands = compare_resources(requested, used, pods=len(others), allocatable=node.status.allocatable)
            return Comparison(demands, find_failures(pod, demands, others, node, rules))

        found = compare_with(node)
        if not needs_fresh_node(found.failures):
            return found
        try:
            return compare_with(await self._node.fetch())
        except KletError as error:
            extra = {"pod": pod.metadata.name, "uid": pod.metadata.uid, "error": str(error)}
            logger.warning("The Node was not read again for a pod whose affinity it does not match", extra=extra)
            return found

    def _request(self, pod: Pod, resource: str) -> int:
        return compute_resource_request(self._allocations.of(pod), resource)
