"""Waits until pods are ready, and shows what happens to them meanwhile.

Of the agent's decisions only those are shown that a user waits for, not every step on the way.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from klet.aio.clock import Clock
from klet.api.klet_v1 import CauseRecord, PullEntry, Why
from klet.api.pod import Pod
from klet.cli.apply_plan import PodKey
from klet.cli.client import AgentError, AgentUnavailable
from klet.cli.manifests import DIGEST_ANNOTATION
from klet.cli.names import manifest_name
from klet.cli.progress import CommandProgress
from klet.cli.pull_words import percent_of, pulls_by_pod
from klet.cli.timeline import render_record
from klet.cli.verdict import NOT_THERE, Broken, Done, Pending, Verdict, judge_pod, name_cause
from klet.model.reasons import Reason

LOOK_SECONDS = 0.5
"""Between two looks when the journal has no new record; every record is a reason to look at once."""

FIRST_MILESTONE = 10
"""Seconds of a pull before it is reported where there is no terminal: most are shorter."""
UNKNOWN_MILESTONE = 30
"""Seconds between two such reports of a pull of which nothing but the time is known."""
QUARTER = 25
"""Percent between two of one that is measured."""

SETTLE_SECONDS = 1.0
"""How long a pod has to stay ready without a restart: one that ends at once is ready for an instant too."""
TROUBLES = frozenset(
    {
        Reason.NETWORK_NOT_READY,
        Reason.MANIFEST_REJECTED,
        Reason.UNHEALTHY,
        Reason.FAILED_CREATE_POD_CONTAINER,
        Reason.FAILED_CREATE_POD_SANDBOX,
        Reason.FAILED_DETACH_VOLUME,
        Reason.FAILED_KILL_CONTAINER,
        Reason.FAILED_KILL_POD,
        Reason.FAILED_ATTACH_VOLUME,
        Reason.FAILED_MAP_VOLUME,
        Reason.FAILED_MOUNT,
        Reason.FAILED_MOUNT_ON_FILESYSTEM_MISMATCH,
        Reason.FAILED_POD_SANDBOX_STATUS,
        Reason.FAILED_POST_START_HOOK,
        Reason.FAILED_PREPARE_DYNAMIC_RESOURCES,
        Reason.FAILED_PRE_STOP_HOOK,
        Reason.FAILED_REMOVE_CONTAINER,
        Reason.FAILED_SYNC,
        Reason.FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET,
        Reason.FAILED_UNMOUNT,
        Reason.FAILED_UNMOUNT_DEVICE,
        Reason.FAILED_VALIDATION,
    }
)
"""Decisions that say why a pod does not get ready.

Failed is not among them: a container that cannot be started is in the status too, in the words that `klet ps` has.
"""


class PodLister(Protocol):
    """Where the pods and their statuses come from, and the causes of these."""

    def pods(self) -> tuple[Pod, ...]: ...

    def why(self, namespace: str, name: str) -> tuple[Why, ...]: ...

    def pulls(self) -> tuple[PullEntry, ...]: ...


class RecordFeed(Protocol):
    """Where the agent's decisions come from."""

    def wait(self, seconds: float) -> Sequence[CauseRecord]: ...


class AppliedPod(Struct, frozen=True):
    """A pod, and the digest of the manifest that was applied."""

    key: PodKey
    digest: str


class FollowedPod(Struct):
    """What was seen and shown of one applied pod."""

    digest: str
    name: str = ""
    """As the agent calls it."""
    verdict: Verdict = field(default_factory=lambda: Pending(""))
    restarts: int = 0
    ready_since: float | None = None
    shown: str = ""
    """The state that was shown last: `Ready`, or nothing."""
    printed: set[str] = field(default_factory=set)

    def see(self, verdict: Verdict, *, restarts: int, now: float) -> None:
        if verdict != Done("Ready") or restarts != self.restarts:
            self.ready_since = None
        if verdict == Done("Ready") and self.ready_since is None:
            self.ready_since = now
        self.verdict, self.restarts = verdict, restarts

    def settles_at(self, now: float) -> float | None:
        """Return when its verdict will count, if nothing happens; None if that takes something to happen."""
        if isinstance(self.verdict, Pending):
            return None
        return now if self.ready_since is None else self.ready_since + SETTLE_SECONDS

    def has_settled(self, now: float) -> bool:
        settles_at = self.settles_at(now)
        return settles_at is not None and settles_at <= now

    def is_news(self, text: str) -> bool:
        """Return whether the text is new, and remember it."""
        is_news = text not in self.printed
        self.printed.add(text)
        return is_news


class PodWaiter:
    """Follows the pods of one `klet up`."""

    def __init__(
        self,
        *,
        pods: PodLister,
        feed: RecordFeed,
        progress: CommandProgress,
        clock: Clock,
        node_name: str,
        is_verbose: bool,
    ) -> None:
        self._pods = pods
        self._feed = feed
        self._progress = progress
        self._clock = clock
        self._node_name = node_name
        self._is_verbose = is_verbose
        self._followed: dict[PodKey, FollowedPod] = {}

    def wait(self, awaited: Sequence[AppliedPod], *, seconds: float) -> Mapping[PodKey, Verdict]:
        """Wait until every pod is done or broken, or the time is up; returns the last verdicts."""
        deadline = self._clock.monotonic() + seconds
        while True:
            verdicts = self.look(awaited)
            now = self._clock.monotonic()
            open_ones = {key: one for key, one in self._followed.items() if not one.has_settled(now)}
            if not open_ones or now >= deadline:
                self._progress.waiting("")
                return {key: self._with_cause(key, verdict) for key, verdict in verdicts.items()}
            self._progress.waiting(f"Waiting for {', '.join(self._describe_waits(open_ones))}")
            ends = [end for one in open_ones.values() if (end := one.settles_at(now)) is not None]
            self.show_records(min(LOOK_SECONDS, max(0.0, min([deadline, *ends]) - now)))

    def look(self, awaited: Sequence[AppliedPod]) -> Mapping[PodKey, Verdict]:
        """Judge the pods now, and show what is new."""
        self._follow(awaited)
        try:
            pods = self._pods.pods()
        except AgentUnavailable:
            for followed in self._followed.values():
                followed.see(Pending("the agent does not answer"), restarts=followed.restarts, now=0)
            return {key: followed.verdict for key, followed in self._followed.items()}
        now = self._clock.monotonic()
        for one in awaited:
            pod = find_applied(pods, one)
            followed = self._followed[one.key]
            followed.name = followed.name if pod is None else pod.metadata.name
            followed.see(judge_pod(pod), restarts=_restarts(pod), now=now)
            self._show_verdict(one.key, followed, now)
        return {key: followed.verdict for key, followed in self._followed.items()}

    def show_records(self, seconds: float) -> None:
        """Show the agent's decisions that come within the time."""
        for record in self._feed.wait(seconds):
            if not record.subject.name:
                continue
            key = PodKey(record.subject.namespace, record.subject.name.removesuffix(f"-{self._node_name}"))
            followed = self._followed.get(key)
            if self._is_verbose:
                self._progress.show(f"{key.label}: {render_record(record)}")
            elif followed is not None and (line := brief_line(record)) and followed.is_news(line):
                self._progress.show(f"{key.label}: {line}")

    def _describe_waits(self, open_ones: Mapping[PodKey, FollowedPod]) -> list[str]:
        """Return the pods that are waited for, each with how far its pull is."""
        try:
            pulls = pulls_by_pod(self._pods.pulls())
        except (AgentError, AgentUnavailable):
            pulls = {}
        labels = []
        for key, followed in open_ones.items():
            pull = pulls.get((key.namespace, followed.name))
            labels.append(key.label if pull is None else f"{key.label} (pulling {pull.image}: {pull.summary})")
            if pull is not None and (reached := milestone_of(pull)) and followed.is_news(reached):
                self._progress.milestone(f"{key.label}: pulling {pull.image}: {pull.summary}")
        return labels

    def _with_cause(self, key: PodKey, verdict: Verdict) -> Verdict:
        """Return a vague verdict with the cause that `klet explain` shows."""
        if isinstance(verdict, Done) or not verdict.is_vague:
            return verdict
        try:
            return name_cause(verdict, self._pods.why(key.namespace, self._followed[key].name))
        except (AgentError, AgentUnavailable):
            return verdict

    def _follow(self, awaited: Sequence[AppliedPod]) -> None:
        """Go on with the pods that are the same, and start over with those that changed."""
        known = self._followed
        self._followed = {
            pod.key: one if (one := known.get(pod.key)) and one.digest == pod.digest else FollowedPod(pod.digest)
            for pod in awaited
        }

    def _show_verdict(self, key: PodKey, followed: FollowedPod, now: float) -> None:
        label = key.label
        match followed.verdict:
            case Done(how):
                # What is ready for an instant between two crashes is not worth a line.
                if followed.has_settled(now) and followed.shown != how:
                    followed.shown = how
                    followed.printed.clear()
                    self._progress.show(f"{label}: {how}")
            case Broken(reason) as verdict:
                if followed.is_news(reason):
                    caused = self._with_cause(key, verdict)
                    why = caused.reason if isinstance(caused, Broken) else reason
                    self._progress.error(f"{label}: failed: {why}")
            case Pending() if followed.shown and followed.verdict == NOT_THERE:
                followed.shown = ""
                self._progress.show(f"{label}: removed or replaced by another command")
            case Pending(reason, is_trouble):
                if (is_trouble or followed.shown) and followed.is_news(reason):
                    self._progress.show(f"{label}: {'not Ready any more: ' if followed.shown else ''}{reason}")
                followed.shown = ""


def find_applied(pods: Sequence[Pod], awaited: AppliedPod) -> Pod | None:
    """Return the pod that was made from exactly the manifest that was applied, not from an older one."""
    for pod in pods:
        if key_of(pod) == awaited.key and pod.metadata.annotations.get(DIGEST_ANNOTATION) == awaited.digest:
            return pod
    return None


def key_of(pod: Pod) -> PodKey:
    """Return the pod as its manifest names it."""
    return PodKey(pod.metadata.namespace, manifest_name(pod))


def _restarts(pod: Pod | None) -> int:
    if pod is None:
        return 0
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return sum(status.restart_count for status in statuses)


def milestone_of(pull: PullEntry) -> str:
    """Return the quarter that a pull has reached, and while nothing is known of it, the half minute.

    Equal texts are one milestone. A pull of a few seconds has none.
    """
    if pull.elapsed_seconds < FIRST_MILESTONE:
        return ""
    percent = percent_of(pull)
    if percent is None:
        return f"{pull.image} {pull.since} {pull.elapsed_seconds // UNKNOWN_MILESTONE}"
    return f"{pull.image} {pull.since} {percent // QUARTER}/4"


def brief_line(record: CauseRecord) -> str | None:
    """Return the decision in a few words, or None if it only matters to those who look closely."""
    container, decision = record.subject.container, record.decision
    if decision in {Reason.PULLING, Reason.PULL_WAITS}:
        return f'container "{container}": {record.message[:1].lower()}{record.message[1:]}'
    if decision == Reason.STARTED:
        return f'container "{container}" started'
    if decision in TROUBLES:
        return render_record(record)
    return None
