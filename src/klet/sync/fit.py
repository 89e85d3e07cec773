"""Looks ahead: would a pod be admitted now, what speaks against it, and who would be stopped for it (`klet fit`).

The same functions decide as for a real pod. What would change something is not called: a preview stands in for it.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from klet.admission.chain import AdmissionChain
from klet.admission.predicate_check import Comparison
from klet.admission.predicates import as_rejection
from klet.admission.resource_fit import ResourceDemand, show_amount
from klet.aio.clock import Clock
from klet.api.klet_v1 import ExplainedPod
from klet.api.klet_v1_fit import API, STATIC, FitAnswer, FitPlacement, FitReason, FitResource, FitVictim
from klet.api.pod import Pod
from klet.model.causes import Measurement
from klet.model.placement import PodPlacement
from klet.model.pods import full_name, is_static
from klet.model.qos import qos_of
from klet.model.verdicts import AdmitHandler, Preempt, Reject, Wait


class PlacementPreview(Protocol):
    """Knows where the containers of a pod would be placed (a dry run of the topology, CPU and memory managers)."""

    async def preview(self, pod: Pod) -> PodPlacement:
        """Return where they would be if the pod came now. Nothing is given to it."""
        ...


class FitPreview:
    """Answers whether a pod would be admitted."""

    def __init__(
        self,
        *,
        chain: AdmissionChain,
        placement: PlacementPreview,
        others_of: Callable[[Pod], Sequence[Pod]],
        clock: Clock,
    ) -> None:
        self._chain = chain
        self._placement = placement
        self._others_of = others_of
        """Returns the pods that a pod would be compared with."""
        self._clock = clock

    async def look(self, pod: Pod) -> FitAnswer:
        """Return what admission would decide about a pod now."""
        every = self._others_of(pod)
        others = [other for other in every if full_name(other) != full_name(pod)]
        replaced = next((other for other in every if full_name(other) == full_name(pod)), None)
        before = await _ask(self._chain.before, pod, others)
        placement = await self._placement.preview(pod)
        compared = await self._chain.predicates.compare(pod, others)
        verdict = self._chain.predicates.decide(pod, compared.failures, others)
        after = await _ask(self._chain.after, pod, others)
        reasons = [
            *before,
            *_refusals(placement),
            *(_speaking_against(verdict, compared) if isinstance(verdict, Reject) else ()),
            *after,
        ]
        victims = verdict.victims if isinstance(verdict, Preempt) and not reasons else ()
        return FitAnswer(
            pod=_name(pod),
            now=self._clock.now(),
            source=STATIC if is_static(pod) else API,
            fits=not reasons,
            reasons=tuple(reasons),
            victims=tuple(_victim(each) for each in victims),
            replaces=_name(replaced) if replaced is not None else None,
            resources=tuple(_resource(each) for each in compared.demands),
            placement=tuple(
                FitPlacement(container=each.container, cpus=each.cpus, numa_nodes=each.numa_nodes)
                for each in placement.containers
            ),
        )


async def _ask(handlers: Sequence[AdmitHandler], pod: Pod, others: Sequence[Pod]) -> list[FitReason]:
    """Return what handlers that change nothing have against a pod."""
    found: list[FitReason] = []
    for handler in handlers:
        verdict = await handler.admit(pod, others)
        if isinstance(verdict, Reject):
            found.append(_reason(verdict))
        elif isinstance(verdict, Wait):
            found.append(FitReason(reason="", message=verdict.message))
    return found


def _speaking_against(verdict: Reject, compared: Comparison) -> list[FitReason]:
    """Return the reason that decides, then all others."""
    others = (as_rejection(each) for each in compared.failures)
    return [_reason(verdict), *(_reason(each) for each in others if each != verdict)]


def _refusals(placement: PodPlacement) -> list[FitReason]:
    refusal = placement.refusal
    return [] if refusal is None else [FitReason(reason=str(refusal.reason), message=refusal.message)]


def _reason(rejected: Reject) -> FitReason:
    why: Measurement = rejected.measurements.get("why", "")
    return FitReason(reason=str(rejected.reason), message=rejected.message, why=str(why))


def _resource(demand: ResourceDemand) -> FitResource:
    requested, used, capacity = (
        show_amount(demand.resource, amount) for amount in (demand.requested, demand.used, demand.capacity)
    )
    return FitResource(
        resource=demand.resource, requested=requested, used=used, allocatable=capacity, short=demand.is_short
    )


def _victim(pod: Pod) -> FitVictim:
    meta = pod.metadata
    return FitVictim(namespace=meta.namespace, name=meta.name, uid=meta.uid, qos_class=str(qos_of(pod)))


def _name(pod: Pod) -> ExplainedPod:
    return ExplainedPod(namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid)
