"""The journal as the HTTP API shows it: records as they are made, and the explanation of one pod or of the node."""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime
from typing import Final, Protocol

from klet.aio.clock import Clock
from klet.api.node import Node
from klet.api.pod import Pod
from klet.journal.diagnosis import Diagnosis, NodeTroubles, diagnose
from klet.journal.evidence import Evidence, Reason
from klet.journal.node_diagnosis import Condition, NodeState, diagnose_node
from klet.journal.records import CauseQuery
from klet.journal.store import Journal
from klet.journal.timeline import Timeline, Waiting, build_timeline
from klet.model.causes import Cause

MOST_EXPLAINED: Final = 5000
"""How many records an explanation looks at: a probe that fails every second makes many."""


class KnownPods(Protocol):
    """The pods that the agent has."""

    def find(self, namespace: str, name: str) -> Pod | None: ...

    def terminating(self) -> tuple[Pod, ...]: ...


class NodeHealth(Protocol):
    """How the node itself is."""

    @property
    def well_at(self) -> datetime | None: ...

    def errors(self) -> Sequence[str]: ...

    def network_error(self) -> str | None: ...


class JournalRecords:
    """Cause records as JSON."""

    def __init__(
        self,
        *,
        journal: Journal,
        pods: KnownPods,
        node: NodeHealth,
        node_name: str,
        api_node: Callable[[], Node | None],
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._pods = pods
        self._node = node
        self._node_name = node_name
        self._api_node = api_node
        """The node as the API server has it, if there is one."""
        self._clock = clock

    async def records(self, *, namespace: str, name: str, since: datetime | None) -> AsyncGenerator[bytes, None]:
        for cause in await self._journal.find(_query(namespace, name, since)):
            yield _line(cause)

    async def follow(self, *, namespace: str, name: str, since: datetime | None) -> AsyncGenerator[bytes, None]:
        query = _query(namespace, name, since)
        with self._journal.follow() as news:
            last = ""
            for cause in await self._journal.find(query):
                last = cause.id
                yield _line(cause)
            async for cause in news:
                if cause.id > last and query.matches(cause):
                    yield _line(cause)

    async def explain(self, *, namespace: str, name: str) -> bytes | None:
        query = CauseQuery(namespace=namespace, name=name, limit=MOST_EXPLAINED)
        records = await self._journal.find(query)
        about_node = await self._journal.find(CauseQuery(is_node=True, since=records[0].at)) if records else ()
        story = build_timeline(records, node=about_node)
        # Read after the records: what they lead to may be seen before it is told, and not the other way round.
        pod = self._pods.find(namespace, name)
        leaving = next((each for each in self._pods.terminating() if _is_named(each, namespace, name)), None)
        if pod is None and leaving is None and not story.lives:
            return None
        now = self._clock.now()
        diagnosis = diagnose(
            pod or leaving,
            story,
            node=NodeTroubles(errors=self._node.errors(), since=self._node.well_at),
            earlier=leaving if pod is not None else None,
            now=now,
        )
        about = {"namespace": namespace, "name": name, "uid": (pod or leaving or Pod()).metadata.uid}
        return json.dumps({"pod": about, "now": now.isoformat(), **explanation_to_json(diagnosis, story)}).encode()

    async def explain_node(self) -> bytes:
        story = build_timeline(await self._journal.find(CauseQuery(is_node=True, limit=MOST_EXPLAINED)))
        state = NodeState(
            errors=self._node.errors(),
            network_error=self._node.network_error(),
            well_at=self._node.well_at,
            node=self._api_node(),
        )
        diagnosis = diagnose_node(state, Evidence(story.lives[-1].causes if story.lives else ()))
        return json.dumps(
            {
                "node": {"name": self._node_name},
                "now": self._clock.now().isoformat(),
                "ready": diagnosis.is_ready,
                "conditions": [_condition_to_json(condition) for condition in diagnosis.conditions],
                "summary": diagnosis.summary,
                "why": [_reason_to_json(reason) for reason in diagnosis.reasons],
                "timeline": _timeline_to_json(story),
            }
        ).encode()

    async def pods(self) -> bytes:
        told = [
            {"namespace": pod.namespace, "name": pod.name, "last": pod.last.isoformat()}
            for pod in await self._journal.pods()
        ]
        return json.dumps({"nodeName": self._node_name, "pods": told}).encode()


def explanation_to_json(diagnosis: Diagnosis, story: Timeline) -> dict[str, object]:
    """What a pod is, why, what it waits for, and how it came to that."""
    state = diagnosis.state
    return {
        "state": {
            "phase": state.phase,
            "ready": state.is_ready,
            "containersReady": state.containers_ready,
            "containers": state.containers,
            "restarts": state.restarts,
            "terminating": state.is_terminating,
            "known": state.is_known,
        },
        "summary": diagnosis.summary,
        "why": [_reason_to_json(reason) for reason in diagnosis.reasons],
        "waitingFor": None if story.waiting is None else _waiting_to_json(story.waiting),
        "timeline": _timeline_to_json(story),
    }


def cause_to_json(cause: Cause) -> dict[str, object]:
    """A record in the form of the API."""
    finding = cause.finding
    subject = finding.subject
    return {
        "id": cause.id,
        "parent": cause.parent,
        "at": cause.at.isoformat(),
        "subject": {
            "namespace": subject.namespace,
            "name": subject.name,
            "uid": subject.uid,
            "container": subject.container,
        },
        "decider": finding.decider,
        "decision": finding.decision,
        "message": finding.message,
        "measurements": dict(finding.measurements),
        "since": _instant(finding.since),
        "next": finding.next,
        "nextAt": _instant(finding.next_at),
    }


def _timeline_to_json(story: Timeline) -> list[dict[str, object]]:
    return [
        {
            **cause_to_json(step.cause),
            "life": number,
            "times": step.times,
            "depth": step.depth,
            "offsetSeconds": step.offset.total_seconds(),
            "lastedSeconds": step.lasted.total_seconds() if step.lasted is not None else None,
        }
        for number, life in enumerate(story.lives)
        for step in life.steps
    ]


def _condition_to_json(condition: Condition) -> dict[str, object]:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "since": _instant(condition.since),
    }


def _reason_to_json(reason: Reason) -> dict[str, object]:
    return {
        "kind": str(reason.kind),
        "reason": reason.word,
        "container": reason.container,
        "message": reason.message,
        "measurements": dict(reason.measurements),
        "since": _instant(reason.since),
        "next": reason.next,
        "nextAt": _instant(reason.next_at),
    }


def _waiting_to_json(waiting: Waiting) -> dict[str, object]:
    return {
        "on": waiting.on,
        "container": waiting.subject.container,
        "message": waiting.message,
        "since": _instant(waiting.since),
    }


def _instant(instant: datetime | None) -> str | None:
    return instant.isoformat() if instant is not None else None


def _line(cause: Cause) -> bytes:
    return json.dumps(cause_to_json(cause)).encode()


def _query(namespace: str, name: str, since: datetime | None) -> CauseQuery:
    return CauseQuery(namespace=namespace, name=name, since=since)


def _is_named(pod: Pod, namespace: str, name: str) -> bool:
    return (pod.metadata.namespace, pod.metadata.name) == (namespace, name)
