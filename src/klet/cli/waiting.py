"""Waits until pods are ready, telling what happens to them meanwhile."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from klet.aio.clock import Clock
from klet.api.pod import Pod
from klet.cli.apply_plan import PodKey
from klet.cli.client import AgentUnavailable, CauseRecord
from klet.cli.manifests import DIGEST_ANNOTATION
from klet.cli.names import manifest_name
from klet.cli.progress import Progress
from klet.cli.timeline import render_record
from klet.cli.verdict import Broken, Done, Pending, Verdict, judge_pod

LOOK_SECONDS = 0.5
"""Between two looks when the journal is silent; every record is a reason to look at once."""

SETTLE_SECONDS = 0.3
"""How long pods have to stay ready: one that ends at once is ready for an instant too."""
QUIET = frozenset({"MissingClusterDNS"})
"""Not told: a node without a cluster's name service gives every pod the host's, as it should."""


class PodLister(Protocol):
    """Where the pods and their statuses come from."""

    def pods(self) -> tuple[Pod, ...]: ...


class RecordFeed(Protocol):
    """Where the agent's decisions come from."""

    def wait(self, seconds: float) -> Sequence[CauseRecord]: ...


@dataclass(frozen=True, slots=True)
class Awaited:
    """A pod in the form that was applied."""

    key: PodKey
    digest: str


class PodWaiter:
    """Follows the pods of one `klet up`."""

    def __init__(self, *, pods: PodLister, feed: RecordFeed, progress: Progress, clock: Clock) -> None:
        self._pods = pods
        self._feed = feed
        self._progress = progress
        self._clock = clock
        self._told: dict[PodKey, Verdict] = {}

    def wait(self, awaited: Sequence[Awaited], *, seconds: float) -> Mapping[PodKey, Verdict]:
        """Wait until every pod is done or broken, or the time is up; returns the last verdicts."""
        deadline = self._clock.monotonic() + seconds
        good_since: float | None = None
        while True:
            verdicts = self.look(awaited)
            now = self._clock.monotonic()
            pending = [str(key) for key, verdict in verdicts.items() if isinstance(verdict, Pending)]
            if pending:
                good_since = None
            elif good_since is None:
                good_since = now
            has_settled = good_since is not None and (now - good_since >= SETTLE_SECONDS or not _may_change(verdicts))
            if has_settled or now >= deadline:
                self._progress.waiting("")
                return verdicts
            self._progress.waiting("Waiting for " + (", ".join(pending) or "the pods to stay ready"))
            until = deadline if good_since is None else min(deadline, good_since + SETTLE_SECONDS)
            self.tell(min(LOOK_SECONDS, max(0.0, until - now)))

    def look(self, awaited: Sequence[Awaited]) -> Mapping[PodKey, Verdict]:
        """Judge the pods now, telling what is new."""
        try:
            pods = self._pods.pods()
        except AgentUnavailable:
            return {pod.key: Pending("the agent does not answer") for pod in awaited}
        verdicts = {pod.key: judge_pod(find_applied(pods, pod)) for pod in awaited}
        for key, verdict in verdicts.items():
            if self._told.get(key) != verdict:
                self._told[key] = verdict
                for line in _describe(key, verdict):
                    self._progress.say(line)
        return verdicts

    def tell(self, seconds: float) -> None:
        """Show the agent's decisions that come within the time."""
        for record in self._feed.wait(seconds):
            if record.subject.name and record.decision not in QUIET:
                self._progress.say(f"{record.subject.namespace}/{record.subject.name}: {render_record(record)}")


def find_applied(pods: Sequence[Pod], awaited: Awaited) -> Pod | None:
    """The pod that was made from exactly the manifest that was applied, not from an older one."""
    for pod in pods:
        key = PodKey(pod.metadata.namespace, manifest_name(pod))
        if key == awaited.key and pod.metadata.annotations.get(DIGEST_ANNOTATION) == awaited.digest:
            return pod
    return None


def _may_change(verdicts: Mapping[PodKey, Verdict]) -> bool:
    return any(verdict == Done("Ready") for verdict in verdicts.values())


def _describe(key: PodKey, verdict: Verdict) -> Iterator[str]:
    """What the journal does not tell: how it ended, and what stands in the way."""
    match verdict:
        case Done(how):
            yield f"{key}: {how}"
        case Broken(reason):
            yield f"{key}: failed: {reason}"
        case Pending(reason, is_trouble):
            if is_trouble:
                yield f"{key}: {reason}"
