"""Joins boards, files and the journal into what the HTTP API shows."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from pathlib import Path

from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.api.pod import Pod
from klet.api.times import Time
from klet.cri.errors import CriError, NotFound, Unavailable
from klet.cri.port import RuntimeService
from klet.journal.records import CauseQuery
from klet.journal.store import Journal
from klet.journal.timeline import build_timeline, render_timeline
from klet.logs.reader import read_logs
from klet.logs.render import LogOptions, resolve_since
from klet.model.causes import Cause
from klet.model.pods import uid_of
from klet.model.runtime import ContainerId
from klet.pods.store import PodStore
from klet.server.log_query import LogQuery
from klet.status.board import StatusBoard
from klet.sync.ledger import WorkerLedger
from klet.sync.loop import SyncLoop
from klet.sync.worker_state import Stage
from klet.wire import cri_v1_pb2 as cri


class BoardPods:
    """The wanted pods with the statuses of the board."""

    def __init__(self, *, pods: PodStore, statuses: StatusBoard, ledger: WorkerLedger) -> None:
        self._pods = pods
        self._statuses = statuses
        self._ledger = ledger

    def pods(self) -> tuple[Pod, ...]:
        return tuple(self._with_status(pod) for pod in self._pods.all())

    def terminating(self) -> tuple[Pod, ...]:
        wanted = self._pods.uids()
        return tuple(
            self._with_status(_as_deleted(state.pod, state.terminating_at))
            for uid, state in self._ledger.all().items()
            if uid not in wanted and state.stage is Stage.TERMINATING
        )

    def find(self, namespace: str, name: str) -> Pod | None:
        pod = self._pods.by_full_name(f"{name}_{namespace}")
        return self._with_status(pod) if pod is not None else None

    def _with_status(self, pod: Pod) -> Pod:
        status = self._statuses.get(uid_of(pod))
        return replace(pod, api_version="v1", kind="Pod", status=status or pod.status)


class RuntimeLogs:
    """Log files, found through the runtime."""

    def __init__(self, *, runtime: RuntimeService, clock: Clock) -> None:
        self._runtime = runtime
        self._clock = clock

    async def read(self, container: ContainerId, query: LogQuery) -> AsyncGenerator[bytes, None]:
        answer = await self._runtime.container_status(cri.ContainerStatusRequest(container_id=container))
        options = LogOptions(
            follow=query.follow,
            tail=query.tail_lines,
            since=resolve_since(seconds=query.since_seconds, time=query.since_time, now=self._clock.now()),
            limit=query.limit_bytes,
            timestamps=query.timestamps,
        )

        async def is_running() -> bool:
            return await self._is_running(container)

        logs = read_logs(Path(answer.status.log_path), options, is_running=is_running, clock=self._clock)
        async with aclosing(logs) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _is_running(self, container: ContainerId) -> bool:
        try:
            answer = await self._runtime.container_status(cri.ContainerStatusRequest(container_id=container))
        except Unavailable:
            return True  # a runtime that restarts says nothing about its containers
        except NotFound:
            return False
        except CriError:
            return True
        return answer.status.state == cri.CONTAINER_RUNNING


class AgentHealth:
    """The checks behind /healthz."""

    def __init__(self, *, loop: SyncLoop) -> None:
        self._loop = loop

    def checks(self) -> dict[str, str | None]:
        return {"ping": None, "log": None, "syncloop": self._loop.health_error()}


class JournalRecords:
    """Cause records as JSON."""

    def __init__(self, *, journal: Journal, clock: Clock) -> None:
        self._journal = journal
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
        causes = await self._journal.find(_query(namespace, name, None))
        if not causes:
            return None
        timeline = build_timeline(causes)
        waiting = timeline.waiting
        document = {
            "pod": {"namespace": namespace, "name": name},
            "timeline": [
                {
                    **cause_to_json(step.cause),
                    "times": step.times,
                    "depth": step.depth,
                    "offsetSeconds": step.offset.total_seconds(),
                    "lastedSeconds": step.lasted.total_seconds() if step.lasted is not None else None,
                }
                for step in timeline.steps
            ],
            "waitingFor": None
            if waiting is None
            else {
                "on": waiting.on,
                "container": waiting.subject.container,
                "message": waiting.message,
                "since": waiting.since.isoformat(),
            },
            "text": render_timeline(timeline, now=self._clock.now()),
        }
        return json.dumps(document).encode()


def _as_deleted(pod: Pod, since: datetime | None) -> Pod:
    """A static pod that goes has no deletion of its own; here it gets one, so that every reader understands it."""
    if pod.metadata.deletion_timestamp is not None or since is None:
        return pod
    return replace(pod, metadata=replace(pod.metadata, deletion_timestamp=Time.of(since)))


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
        "since": finding.since.isoformat() if finding.since is not None else None,
        "next": finding.next,
    }


def _line(cause: Cause) -> bytes:
    return json.dumps(cause_to_json(cause)).encode()


def _query(namespace: str, name: str, since: datetime | None) -> CauseQuery:
    return CauseQuery(namespace=namespace, name=name, since=since)
