"""Has the resource managers allocate for a pod, near the NUMA nodes that all of them agree on (topology manager)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from klet.aio.clock import Clock
from klet.api.container import Container
from klet.api.pod import Pod
from klet.checkpoint.errors import CheckpointError
from klet.model.causes import CauseRecorder
from klet.model.pods import PodUID, uid_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.verdicts import Admit, Reject, Verdict, Wait
from klet.resources.metrics import CONTAINER_SCOPE, NUMA_NODE, POD_SCOPE, AlignmentMetrics, TopologyMetrics
from klet.resources.topology.hints import AllocationFailure, Hint, HintProvider, Hints
from klet.resources.topology.merge import NOWHERE, Alignment, merge_hints
from klet.resources.topology.rules import TopologyPolicy, TopologyRules, TopologyScope
from klet.resources.topology.words import describe_hint, describe_hints

DECIDER: Final = "resources.topology"
NOT_ALIGNED: Final = "Resources cannot be allocated with Topology locality"


class TopologyManager:
    """Admits a pod when its resources have been allocated: from NUMA nodes that suit the policy."""

    def __init__(
        self,
        *,
        providers: Sequence[HintProvider],
        rules: TopologyRules,
        metrics: TopologyMetrics,
        alignment: AlignmentMetrics,
        recorder: CauseRecorder,
        clock: Clock,
    ) -> None:
        self._providers = tuple(providers)
        """In the order in which they allocate."""
        self._rules = rules
        self._metrics = metrics
        self._alignment = alignment
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock
        self._settled: frozenset[PodUID] = frozenset()
        """Pods that have been asked about: what they have is recorded."""

    async def admit(self, pod: Pod, others: Sequence[Pod]) -> Verdict:
        """Allocate the resources of a pod. What it has already it keeps, so a pod may be asked about twice."""
        self._metrics.requests.add()
        began = self._clock.monotonic()
        try:
            await self._adopt(others)
            verdict = await self._allocate(pod)
            self._settled |= {uid_of(pod)}
        except CheckpointError as error:
            # What is not on disk could be given to another pod after a restart.
            return Wait(f"its resources cannot be recorded: {error}")
        finally:
            self._metrics.duration.observe((self._clock.monotonic() - began) * 1000)
        if isinstance(verdict, Reject) and self._rules.policy is not TopologyPolicy.NONE:
            self._metrics.errors.add()
        return verdict

    async def _adopt(self, others: Sequence[Pod]) -> None:
        """Allocate first for pods that a previous run of the agent admitted, so that no other pod gets what they use.

        Nearly always they have it by the record of that run. One of another policy left none; upstream asks about
        every pod again when it starts, and rejects those that do not fit. A pod that runs goes on here.
        """
        unsettled = [other for other in others if uid_of(other) not in self._settled] if self._providers else []
        for other in unsettled:
            verdict = await self._allocate(other)
            if isinstance(verdict, Reject):
                self._decisions.for_pod(other).record(
                    Reason.RUNS_WITHOUT_OWN_RESOURCES, verdict.message, measurements=verdict.measurements
                )
        self._settled = frozenset(uid_of(other) for other in others)

    async def _allocate(self, pod: Pod) -> Admit | Reject:
        match self._rules.policy, self._rules.scope:
            case TopologyPolicy.NONE, _:
                return await self._give(pod, every_container(pod), NOWHERE)
            case _, TopologyScope.POD:
                return await self._allocate_together(pod)
            case _, TopologyScope.CONTAINER:
                return await self._allocate_apart(pod)

    async def _allocate_together(self, pod: Pod) -> Admit | Reject:
        affinity = self._align(pod, "", [provider.pod_hints(pod) for provider in self._providers], POD_SCOPE)
        if isinstance(affinity, Reject):
            return affinity
        verdict = await self._give(pod, every_container(pod), affinity)
        if isinstance(verdict, Admit):
            self._count_aligned(POD_SCOPE)
        return verdict

    async def _allocate_apart(self, pod: Pod) -> Admit | Reject:
        for container in every_container(pod):
            hints = [provider.container_hints(pod, container) for provider in self._providers]
            affinity = self._align(pod, container.name, hints, CONTAINER_SCOPE)
            if isinstance(affinity, Reject):
                return affinity
            verdict = await self._give(pod, (container,), affinity)
            if isinstance(verdict, Reject):
                return verdict
            self._count_aligned(CONTAINER_SCOPE)
        return Admit()

    def _align(self, pod: Pod, container: str, hints: Sequence[Hints], scope: str) -> Hint | Reject:
        affinity = merge_hints(hints, self._rules)
        wanted = describe_hints(hints)
        if affinity.is_admitted:
            if wanted:
                self._note(pod, container, affinity, wanted)
            return affinity.hint
        if self._rules.guarantees_alignment:
            self._alignment.failed.add(scope, NUMA_NODE)
        measurements = {
            "why": f"the policy {self._rules.policy} finds no NUMA nodes that suit all: {wanted}",
            "policy": str(self._rules.policy),
            "best": describe_hint(affinity.hint),
            **({"container": container} if container else {}),
        }
        return Reject(Reason.TOPOLOGY_AFFINITY_ERROR, NOT_ALIGNED, measurements)

    def _note(self, pod: Pod, container: str, affinity: Alignment, wanted: str) -> None:
        """Record which NUMA nodes were chosen, and from which hints."""
        nodes = describe_hint(affinity.hint)
        self._decisions.for_pod(pod, container).record(
            Reason.TOPOLOGY_ALIGNED,
            f"resources are allocated from {nodes}",
            measurements={"policy": str(self._rules.policy), "scope": str(self._rules.scope), "hints": wanted},
        )

    async def _give(self, pod: Pod, containers: Iterable[Container], affinity: Hint) -> Admit | Reject:
        for container in containers:
            for provider in self._providers:
                failure = await provider.allocate(pod, container, affinity)
                if failure is not None:
                    return _reject(failure, container.name)
        return Admit()

    def _count_aligned(self, scope: str) -> None:
        if self._rules.guarantees_alignment:
            self._alignment.aligned.add(scope, NUMA_NODE)


def every_container(pod: Pod) -> Iterator[Container]:
    """Return the containers in the order in which they are given resources."""
    yield from pod.spec.init_containers
    yield from pod.spec.containers


def _reject(failure: AllocationFailure, container: str) -> Reject:
    measurements = {"why": failure.message, "container": container}
    if failure.reason is not None:
        return Reject(failure.reason, failure.message, measurements)
    message = f"Allocate failed due to {failure.message}, which is unexpected"
    return Reject(Reason.UNEXPECTED_ADMISSION_ERROR, message, measurements)
