"""The wanted pods of all sources, as changes for the sync loop (upstream's PodConfig and sourcesReady).

A source leaves its newest snapshot; it is merged when the loop asks for the next change. So a slow loop sees the newest
state, never a backlog, and what is kept is one snapshot for each source and the changes of one merge.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping

from klet.aio.clock import Clock
from klet.api.pod import Pod
from klet.model.causes import CauseRecorder
from klet.model.pods import PodUID, full_name, subject_of, uid_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.sources.merge import Duplicate, PodChanges, duplicate_message, merge_pods

logger = logging.getLogger(__name__)

DECIDER = "sources.config"


class PodConfig:
    """Newest snapshot of each source in, ordered changes out."""

    def __init__(self, *, sources: Iterable[str], recorder: CauseRecorder, clock: Clock) -> None:
        self._states = {source: _SourceState() for source in sources}
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock
        self._changes: deque[PodChanges] = deque()
        self._arrived = asyncio.Event()

    def set_pods(self, source: str, pods: tuple[Pod, ...]) -> None:
        """Set the pods that a source has now."""
        state = self._states[source]
        state.snapshot = pods
        state.is_seen = True
        self._arrived.set()

    async def next_change(self) -> PodChanges:
        """Return the next change; wait for one if there is none."""
        while not self._changes:
            self._arrived.clear()
            self._merge_news()
            if not self._changes:
                await self._arrived.wait()
        return self._changes.popleft()

    def mark_handled(self, source: str) -> None:
        """Note that a change of that source was handled."""
        self._states[source].is_handled = True

    def all_ready(self) -> bool:
        """Return whether a change of every source was handled; nothing is removed before that."""
        return all(state.is_seen and state.is_handled for state in self._states.values())

    def _merge_news(self) -> None:
        for source, state in self._states.items():
            if state.snapshot is None:
                continue
            now = self._clock.now().astimezone()
            merged = merge_pods(
                state.known, state.snapshot, source=source, now=now, is_first=not state.is_merged, last=state.last
            )
            state.last = {pod.metadata.uid: pod for pod in state.snapshot}
            state.snapshot = None
            state.is_merged = True
            state.known = merged.known
            self._changes.extend(merged.changes)
            self._reject_duplicates(source, state, merged.duplicates)

    def _reject_duplicates(self, source: str, state: "_SourceState", duplicates: tuple[Duplicate, ...]) -> None:
        rejected = frozenset((uid_of(each.pod), full_name(each.pod)) for each in duplicates)
        for each in duplicates:
            pod = each.pod
            if (uid_of(pod), full_name(pod)) in state.rejected:
                continue
            logger.warning(
                "Pod left out: another one has its name or UID",
                extra={"pod": subject_of(pod).name, "other": subject_of(each.used).name, "source": source},
            )
            self._decisions.for_pod(pod).record(Reason.FAILED_VALIDATION, duplicate_message(each, source))
        state.rejected = rejected


class _SourceState:
    """What is known of one source."""

    __slots__ = ("is_handled", "is_merged", "is_seen", "known", "last", "rejected", "snapshot")

    def __init__(self) -> None:
        self.known: Mapping[PodUID, Pod] = {}
        self.last: Mapping[str, Pod] = {}
        self.snapshot: tuple[Pod, ...] | None = None
        self.rejected: frozenset[tuple[PodUID, str]] = frozenset()
        self.is_seen = False
        self.is_merged = False
        self.is_handled = False
