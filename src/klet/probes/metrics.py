"""Metrics of probes, for `/metrics/probes`. The series of a probe end with it."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.pod import Pod
from klet.metrics import DEFAULT_BOUNDS, Counter, Histogram, Label, MetricRegistry, ObjectName
from klet.model.probes import ProbeKind
from klet.probes.handler import ProbeAnswer, ProbeOutcome, ProbeTarget, Question
from klet.probes.periods import probe_of
from klet.probes.worker import ProbeCarrier

_RESULTS: Final = {
    ProbeAnswer.SUCCESS: "successful",
    ProbeAnswer.WARNING: "successful",
    ProbeAnswer.FAILURE: "failed",
    ProbeAnswer.UNKNOWN: "unknown",
}
_KINDS: Final = {kind: kind.value.capitalize() for kind in ProbeKind}


class ProbeMetrics(Struct, frozen=True, kw_only=True):
    """Results of probes, and how long they took."""

    total: Counter
    duration: Histogram


def register_probes(registry: MetricRegistry) -> ProbeMetrics:
    kind = Label("probe_type", frozenset(_KINDS.values()))
    objects = ObjectName("container"), ObjectName("pod"), ObjectName("namespace")
    return ProbeMetrics(
        total=registry.counter(
            "prober_probe_total",
            "Results of the probes of containers.",
            (kind, Label("result", frozenset(_RESULTS.values())), *objects, ObjectName("pod_uid")),
        ),
        duration=registry.histogram(
            "prober_probe_duration_seconds",
            "How long probes took that did not fail.",
            DEFAULT_BOUNDS,
            (kind, *objects),
        ),
    )


class CountedProber:
    """The probes of another one, counted."""

    def __init__(self, *, inner: ProbeCarrier, metrics: ProbeMetrics, clock: Clock) -> None:
        self._inner = inner
        self._metrics = metrics
        self._clock = clock

    def prepare(self, target: ProbeTarget) -> Question:
        question = self._inner.prepare(target)
        kind = next((kind for kind in ProbeKind if probe_of(target.container, kind) is target.probe), None)
        if kind is None:
            return question
        where = target.container.name, target.pod.metadata.name, target.pod.metadata.namespace
        totals = {
            answer: (_KINDS[kind], result, *where, target.pod.metadata.uid) for answer, result in _RESULTS.items()
        }
        return _Counted(question, totals, (_KINDS[kind], *where), self._metrics, self._clock).ask

    def forget(self, pod: Pod, container: str, kind: ProbeKind) -> None:
        """Remove the series of a probe that is not run any more."""
        where = container, pod.metadata.name, pod.metadata.namespace
        for result in set(_RESULTS.values()):
            self._metrics.total.remove(_KINDS[kind], result, *where, pod.metadata.uid)
        self._metrics.duration.remove(_KINDS[kind], *where)
        self._inner.forget(pod, container, kind)


class _Counted(Struct, frozen=True):
    """A probe, and the labels of its series, which are made once."""

    question: Question
    totals: Mapping[ProbeAnswer, tuple[str, ...]]
    labels: tuple[str, ...]
    metrics: ProbeMetrics
    clock: Clock

    async def ask(self) -> ProbeOutcome:
        began = self.clock.monotonic()
        outcome = await self.question()
        # As upstream: one that could not be carried out has no result, and the time of a failure is not measured.
        if not outcome.error:
            self.metrics.total.add(*self.totals[outcome.answer])
            if outcome.answer is not ProbeAnswer.FAILURE:
                self.metrics.duration.observe(self.clock.monotonic() - began, *self.labels)
        return outcome
