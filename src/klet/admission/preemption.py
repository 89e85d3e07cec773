"""Which pods make room for a critical pod that the node has too little of something for (preemption). Pure."""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from klet.api.pod import Pod, PodCondition, PodStatus
from klet.model.conditions import DISRUPTION_TARGET, TRUE
from klet.model.pod_resources import CPU, MEMORY
from klet.model.pods import is_critical
from klet.model.qos import QosClass, qos_of
from klet.model.reasons import Reason

MESSAGE: Final = "Preempted in order to admit critical pod"
_WHY: Final = "Pod was preempted by Kubelet to accommodate a critical pod."

Requests = Callable[[Pod, str], int]
"""Returns what a pod requests of a resource."""


class Need(Struct, frozen=True):
    """How much of a resource is missing."""

    resource: str
    amount: int


class NoVictims(Struct, frozen=True):
    """All pods that could make room together would not make enough."""

    unmet: tuple[Need, ...]

    @property
    def message(self) -> str:
        unmet = "".join(f"(res: {need.resource}, q: {need.amount}), " for need in self.unmet)
        return (
            "preemption: error finding a set of pods to preempt: "
            f"no set of running pods found to reclaim resources: [{unmet}]"
        )


def choose_victims(
    pod: Pod, others: Sequence[Pod], needs: Sequence[Need], requests: Requests
) -> tuple[Pod, ...] | NoVictims:
    """Return the pods to stop, in this order: as few as possible, and of the lowest QoS class that suffices."""
    requests = _compute_once(requests)
    by_class: dict[QosClass, list[Pod]] = {each: [] for each in QosClass}
    for other in others:
        if is_preemptable(pod, other):
            by_class[qos_of(other)].append(other)
    best_effort, burstable = by_class[QosClass.BEST_EFFORT], by_class[QosClass.BURSTABLE]
    guaranteed = by_class[QosClass.GUARANTEED]
    if unmet := _without(needs, [*best_effort, *burstable, *guaranteed], requests):
        return NoVictims(unmet)
    # Of a class, only what all lower classes together leave open.
    first = _nearest(guaranteed, _without(needs, [*best_effort, *burstable], requests), requests)
    second = _nearest(burstable, _without(needs, [*best_effort, *first], requests), requests)
    third = _nearest(best_effort, _without(needs, [*second, *first], requests), requests)
    return (*third, *second, *first)


def is_preemptable(preemptor: Pod, pod: Pod) -> bool:
    """Return whether a pod has to make room: one that is not critical, or one of lower priority."""
    if is_critical(preemptor) and not is_critical(pod):
        return True
    mine, other = preemptor.spec.priority, pod.spec.priority
    return mine is not None and other is not None and mine > other


def as_preempted(status: PodStatus) -> PodStatus:
    """Return the status of a pod that had to make room."""
    disrupted = PodCondition(
        type=DISRUPTION_TARGET,
        status=TRUE,
        reason="TerminationByKubelet",
        message=_WHY,
        observed_generation=status.observed_generation,
    )
    others = tuple(each for each in status.conditions if each.type != DISRUPTION_TARGET)
    return replace(
        status, phase="Failed", reason=str(Reason.PREEMPTING), message=MESSAGE, conditions=(*others, disrupted)
    )


def _compute_once(requests: Requests) -> Requests:
    """Return the same for each pod without computing it for each comparison."""
    known: dict[tuple[int, str], int] = {}

    def ask(pod: Pod, resource: str) -> int:
        # The pods outlive the choice, so no other object can get the identity of one of them.
        key = (id(pod), resource)
        if key not in known:
            known[key] = requests(pod, resource)
        return known[key]

    return ask


def _without(needs: Sequence[Need], pods: Sequence[Pod], requests: Requests) -> tuple[Need, ...]:
    """Return what is still missing once these pods have stopped."""
    left = (Need(need.resource, need.amount - sum(requests(pod, need.resource) for pod in pods)) for need in needs)
    return tuple(need for need in left if need.amount > 0)


def _nearest(pods: Sequence[Pod], needs: Sequence[Need], requests: Requests) -> list[Pod]:
    """Return pods until nothing is missing, each time the one that leaves least open; they suffice together."""
    candidates, chosen = list(pods), list[Pod]()
    while needs:
        best = candidates[0]
        least = _distance(best, needs, requests)
        for pod in candidates[1:]:
            mine = _distance(pod, needs, requests)
            # Of equals the one with smaller requests; of equals even then, the later one.
            if mine < least or (mine == least and _size(pod, requests) <= _size(best, requests)):
                best, least = pod, mine
        needs = _without(needs, [best], requests)
        chosen.append(best)
        # As upstream, the last candidate takes its place: that decides between equals in the next round.
        candidates[candidates.index(best)] = candidates[-1]
        candidates.pop()
    return chosen


def _distance(pod: Pod, needs: Sequence[Need], requests: Requests) -> float:
    """Return how far a pod is from meeting the needs; each of them weighs the same.

    Every step rounds as upstream's does, so that pods are equally far from the needs in both.
    """
    distance = 0.0
    for need in needs:
        left = float(need.amount - requests(pod, need.resource))
        if left > 0:
            share = left / float(need.amount)
            distance += share * share
    return distance


def _size(pod: Pod, requests: Requests) -> tuple[int, int]:
    return requests(pod, MEMORY), requests(pod, CPU)
