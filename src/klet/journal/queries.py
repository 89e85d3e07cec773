"""Answers the HTTP API from the journal: new records, and the explanation of one pod or of the node."""

from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime
from typing import Final, Protocol

from klet.aio.broadcast import Subscription
from klet.aio.clock import Clock
from klet.api import klet_v1
from klet.api.node import Node
from klet.api.pod import Pod
from klet.journal.answers import answer_node, answer_pod, answer_record, explained_pod
from klet.journal.diagnosis import NodeTroubles, diagnose
from klet.journal.evidence import Evidence
from klet.journal.node_diagnosis import NodeState, diagnose_node
from klet.journal.records import CauseQuery
from klet.journal.timeline import build_timeline
from klet.model.causes import Cause
from klet.model.roles import PullReader

MOST_EXPLAINED: Final = 5000
"""How many records an explanation looks at: a probe that fails every second makes many."""


class KeptCauses(Protocol):
    """Cause records, in a file or in memory."""

    def follow(self) -> Subscription[Cause]: ...

    async def find(self, query: CauseQuery) -> tuple[Cause, ...]: ...

    async def pods(self) -> tuple[klet_v1.RecordedPod, ...]: ...


class KnownPods(Protocol):
    """The pods that the agent has."""

    def find(self, namespace: str, name: str) -> Pod | None: ...

    def terminating(self) -> tuple[Pod, ...]: ...


class NodeHealth(Protocol):
    """How the node itself is."""

    @property
    def has_answered(self) -> bool: ...

    @property
    def well_at(self) -> datetime | None: ...

    def errors(self) -> Sequence[str]: ...

    def network_error(self) -> str | None: ...


class JournalQueries:
    """Answers questions about cause records in the form of the agent's own API."""

    def __init__(
        self,
        *,
        journal: KeptCauses,
        pods: KnownPods,
        node: NodeHealth,
        node_name: str,
        api_node: Callable[[], Node | None],
        pulls: PullReader,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._pods = pods
        self._node = node
        self._node_name = node_name
        self._api_node = api_node
        """The node as the API server has it, if there is one."""
        self._pulls = pulls
        self._clock = clock

    async def records(
        self, *, namespace: str, name: str, since: datetime | None
    ) -> AsyncGenerator[klet_v1.CauseRecord, None]:
        for cause in await self._journal.find(_query(namespace, name, since)):
            yield answer_record(cause)

    async def follow(
        self, *, namespace: str, name: str, since: datetime | None
    ) -> AsyncGenerator[klet_v1.CauseRecord, None]:
        query = _query(namespace, name, since)
        with self._journal.follow() as news:
            last = ""
            for cause in await self._journal.find(query):
                last = cause.id
                yield answer_record(cause)
            async for cause in news.items():
                if cause.id > last and query.matches(cause):
                    yield answer_record(cause)

    async def explain(self, *, namespace: str, name: str) -> klet_v1.Explanation | None:
        query = CauseQuery(namespace=namespace, name=name, limit=MOST_EXPLAINED)
        records = await self._journal.find(query)
        about_node = await self._journal.find(CauseQuery(is_node=True, since=records[0].at)) if records else ()
        story = build_timeline(records, node=about_node)
        pulls = [pull for pull in await self._pulls.look() if (pull.namespace, pull.pod) == (namespace, name)]
        # The state is read after the records: it may then be newer than the records, but never older.
        pod = self._pods.find(namespace, name)
        leaving = next((each for each in self._pods.terminating() if _is_named(each, namespace, name)), None)
        if pod is None and leaving is None and not story.histories:
            return None
        now = self._clock.now()
        diagnosis = diagnose(
            pod or leaving,
            story,
            node=NodeTroubles(errors=self._node.errors(), since=self._node.well_at),
            earlier=leaving if pod is not None else None,
            pulls=pulls,
            now=now,
        )
        return answer_pod(explained_pod(namespace, name, pod or leaving), diagnosis, story, now=now)

    async def explain_node(self) -> klet_v1.NodeExplanation:
        story = build_timeline(await self._journal.find(CauseQuery(is_node=True, limit=MOST_EXPLAINED)))
        state = NodeState(
            errors=self._node.errors(),
            network_error=self._node.network_error(),
            has_answered=self._node.has_answered,
            well_at=self._node.well_at,
            node=self._api_node(),
        )
        diagnosis = diagnose_node(state, Evidence(story.histories[-1].causes if story.histories else ()))
        return answer_node(self._node_name, diagnosis, story, now=self._clock.now())

    async def pods(self) -> klet_v1.RecordedPods:
        return klet_v1.RecordedPods(node_name=self._node_name, pods=await self._journal.pods())


def _query(namespace: str, name: str, since: datetime | None) -> CauseQuery:
    return CauseQuery(namespace=namespace, name=name, since=since)


def _is_named(pod: Pod, namespace: str, name: str) -> bool:
    return (pod.metadata.namespace, pod.metadata.name) == (namespace, name)
