"""The agent's API over a real Unix socket: who may open it, what it answers, how its streams end."""

import asyncio
import io
import json
import logging
import os
import socket
import stat
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from msgspec.structs import replace

from klet.aio.clock import SystemClock
from klet.aio.tasks import first_of
from klet.api.container_status import ContainerState, ContainerStateRunning, ContainerStatus
from klet.api.klet_v1 import (
    CauseRecord,
    CauseSubject,
    ExplainedNode,
    ExplainedPod,
    Explanation,
    NodeExplanation,
    PodListing,
    PullListing,
    RecordedPods,
)
from klet.api.klet_v1_fit import FIT, STATIC, FitAnswer
from klet.api.klet_v1_images import (
    IMAGE_GC,
    IMAGES,
    ImageDisk,
    ImageFate,
    ImageGcPreview,
    ImageGcRules,
    NodeImage,
    NodeImageListing,
)
from klet.api.klet_v1_topology import TOPOLOGY, CpuSocket, MachineTopology
from klet.api.pod import Pod, PodStatus
from klet.errors import KletError
from klet.host.inotify import ChangeKind, DirectoryChange, watch_directory
from klet.metrics import MetricRegistry
from klet.model.log_query import LogQuery
from klet.model.pull_progress import PullProgress, PullStage
from klet.model.runtime import ContainerId
from klet.server.listener import ListenError, SocketListener
from klet.server.metrics import register_health
from klet.server.routes.fit import FitRoutes
from klet.server.routes.health import HealthCheck, HealthRoutes
from klet.server.routes.images import ImageRoutes
from klet.server.routes.klet import KletRoutes
from klet.server.routes.pods import PodRoutes
from klet.server.routes.pulls import PullRoutes
from klet.sources.manifest_preview import ManifestPreview
from klet.testing.builders import make_pod
from klet.testing.strict import decode_strictly

PROMPTLY = 30
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def running_pod() -> Pod:
    status = ContainerStatus(
        name="main", state=ContainerState(running=ContainerStateRunning()), container_id="containerd://id-1"
    )
    return replace(make_pod("main", name="web"), status=PodStatus(phase="Running", container_statuses=(status,)))


class Pods:
    def __init__(self) -> None:
        self.all: tuple[Pod, ...] = (running_pod(),)
        self.leaving: tuple[Pod, ...] = ()

    def terminating(self) -> tuple[Pod, ...]:
        return self.leaving

    def pods(self) -> tuple[Pod, ...]:
        return self.all

    def find(self, namespace: str, name: str) -> Pod | None:
        named = (pod for pod in self.all if (pod.metadata.namespace, pod.metadata.name) == (namespace, name))
        return next(named, None)


class Logs:
    """Says what was asked for and then a line; a follower waits for more until it is gone."""

    def __init__(self) -> None:
        self.asked: list[tuple[ContainerId, LogQuery]] = []
        self.error: KletError | None = None
        self.is_silent = False
        self.ended = asyncio.Event()

    async def read(self, container: ContainerId, query: LogQuery) -> AsyncGenerator[bytes, None]:
        self.asked.append((container, query))
        try:
            if not self.is_silent:
                yield b"hello\n"
            if self.error is not None:
                raise self.error
            if query.follow:
                await asyncio.Event().wait()
            yield b"bye\n"
        finally:
            self.ended.set()


class Health:
    def __init__(self) -> None:
        self.errors: dict[str, str | None] = {"ping": None, "syncloop": None}

    def checks(self) -> dict[str, HealthCheck]:
        return {name: partial(self.error_of, name) for name in self.errors}

    def error_of(self, name: str) -> str | None:
        return self.errors[name]


class Journal:
    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def records(self, *, namespace: str, name: str, since: datetime | None) -> AsyncGenerator[CauseRecord, None]:
        yield CauseRecord(at=NOW, subject=CauseSubject(namespace=namespace, name=name), since=since)

    async def follow(self, *, namespace: str, name: str, since: datetime | None) -> AsyncGenerator[CauseRecord, None]:
        try:
            yield CauseRecord(at=NOW, subject=CauseSubject(namespace=namespace, name=name), since=since)
            await asyncio.Event().wait()
        finally:
            self.ended.set()

    async def explain(self, *, namespace: str, name: str) -> Explanation | None:
        return Explanation(pod=ExplainedPod(namespace=namespace, name=name), now=NOW) if name == "web" else None

    async def explain_node(self) -> NodeExplanation:
        return NodeExplanation(node=ExplainedNode(name="n1"), now=NOW, ready=True)

    async def pods(self) -> RecordedPods:
        return RecordedPods(node_name="n1")


class Pulls:
    """One pull that is measured, and one that only has a time."""

    async def look(self) -> tuple[PullProgress, ...]:
        known = PullProgress(
            image="app:1",
            namespace="default",
            pod="web",
            since=NOW,
            elapsed=timedelta(seconds=4),
            stage=PullStage.FETCHING,
            fetched=1 << 20,
            total=4 << 20,
            rate=1024.0,
            left=timedelta(seconds=3072),
        )
        return (known, PullProgress(image="b", namespace="x", pod="y", since=NOW, elapsed=timedelta(seconds=1)))


class Images:
    """One image that nobody uses; or an error."""

    def __init__(self) -> None:
        self.error: KletError | None = None

    async def images(self) -> NodeImageListing:
        if self.error is not None:
            raise self.error
        image = NodeImage(id="sha256:1", tags=("a:1",), size_bytes=7, first_detected=NOW, unused_since=NOW)
        return NodeImageListing(now=NOW, images=(image,))

    async def preview(self) -> ImageGcPreview:
        listing = await self.images()
        rules = ImageGcRules(
            enabled=True, high_threshold_percent=85, low_threshold_percent=80, minimum_age_seconds=120.0
        )
        fate = ImageFate(image=listing.images[0], removed=True, reason="space")
        disk = ImageDisk(capacity_bytes=100, available_bytes=10, used_percent=90)
        return ImageGcPreview(now=NOW, rules=rules, disk=disk, bytes_to_free=10, bytes_freed=7, fates=(fate,))


MACHINE = MachineTopology(node="node", sockets=(CpuSocket(id=1),))


class Fit:
    """Admits every pod, and remembers which."""

    def __init__(self) -> None:
        self.asked: list[Pod] = []

    async def look(self, pod: Pod) -> FitAnswer:
        self.asked.append(pod)
        named = ExplainedPod(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
        return FitAnswer(pod=named, now=NOW, source=STATIC, fits=True)


class Bench:
    """A listener with small views, and a client of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pods, self.logs, self.health, self.journal = Pods(), Logs(), Health(), Journal()
        self.pulls = Pulls()
        self.images = Images()
        self.fit = Fit()
        self.listener = SocketListener(
            path=path,
            routes=(
                PodRoutes(pods=self.pods, logs=self.logs),
                HealthRoutes(checks=self.health.checks(), metrics=register_health(MetricRegistry())),
                KletRoutes(pods=self.pods, journal=self.journal, topology=lambda: MACHINE),
                PullRoutes(pulls=self.pulls, clock=SystemClock()),
                ImageRoutes(images=self.images),
                FitRoutes(manifests=ManifestPreview(node_name="machine", has_api=False), fit=self.fit),
            ),
            clock=SystemClock(),
        )
        self.session = aiohttp.ClientSession(
            "http://klet", connector=aiohttp.UnixConnector(str(path)), timeout=aiohttp.ClientTimeout(PROMPTLY)
        )

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(path) as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def serving(listener: SocketListener, path: Path):
    """Run a listener until the block ends; enter when its socket is there, or it has failed."""
    async with asyncio.TaskGroup() as group, aclosing(watch_directory(path.parent)) as changes:
        await anext(changes)  # the watch is in place
        task = group.create_task(listener.run())
        await first_of(_has_come(path, changes), asyncio.wait([task]))
        try:
            yield task
        finally:
            task.cancel()


async def _has_come(path: Path, changes: AsyncGenerator[DirectoryChange, None]) -> None:
    async for change in changes:
        if change == DirectoryChange(ChangeKind.MOVED_IN, path.name):
            return


@pytest.fixture
async def bench(tmp_path):
    bench = Bench(tmp_path / "klet.sock")
    async with bench.session, serving(bench.listener, bench.path):
        yield bench


async def test_only_its_owner_may_open_the_socket_whatever_the_umask(tmp_path):
    bench = Bench(tmp_path / "klet.sock")
    before = os.umask(0)
    try:
        async with bench.session, serving(bench.listener, bench.path):
            assert stat.S_IMODE(bench.path.stat().st_mode) == 0o600
    finally:
        os.umask(before)
    assert not bench.path.exists()


async def test_the_socket_of_an_earlier_life_is_replaced(tmp_path):
    path = tmp_path / "klet.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    assert path.exists()
    bench = Bench(path)
    async with bench.session, serving(bench.listener, path):
        assert await bench.get("/healthz") == (200, "ok")


@pytest.mark.parametrize("where", ["missing/klet.sock", "directory"])
async def test_a_place_that_cannot_be_listened_on(tmp_path, where):
    (tmp_path / "directory").mkdir()
    listener = SocketListener(path=tmp_path / where, routes=(), clock=SystemClock())
    with pytest.raises(ListenError, match=f"^cannot listen on {tmp_path / where}: "):
        await listener.run()
    assert (tmp_path / "directory").is_dir()


async def test_health(bench):
    assert await bench.get("/healthz") == (200, "ok")
    assert await bench.get("/healthz?verbose") == (200, "[+]ping ok\n[+]syncloop ok\nhealthz check passed\n")
    assert await bench.get("/healthz/ping") == (200, "ok")
    assert (await bench.get("/healthz/unknown"))[0] == 404
    async with bench.session.post("/healthz") as answer:
        assert answer.status == 200


async def test_health_of_an_ill_agent(bench):
    bench.health.errors["syncloop"] = "sync Loop took longer than expected"
    assert await bench.get("/healthz") == (
        500,
        "[+]ping ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n",
    )
    assert await bench.get("/healthz/syncloop") == (
        500,
        "internal server error: sync Loop took longer than expected\n",
    )
    assert await bench.get("/healthz?exclude=syncloop") == (200, "ok")
    assert await bench.get("/healthz/ping") == (200, "ok")


@pytest.mark.parametrize("path", ["/pods", "/pods/"])
async def test_pods(bench, path):
    status, text = await bench.get(path)
    document = json.loads(text)
    assert status == 200
    assert text.endswith("}\n")
    assert (document["kind"], document["apiVersion"], document["metadata"]) == ("PodList", "v1", {})
    assert [(pod["metadata"]["name"], pod["status"]["phase"]) for pod in document["items"]] == [("web", "Running")]


async def test_no_pods_are_null(bench):
    bench.pods.all = ()
    assert await bench.get("/pods") == (200, '{"kind":"PodList","apiVersion":"v1","metadata":{},"items":null}\n')


async def test_pods_on_their_way_out_are_on_klets_own_list_alone(bench):
    bench.pods.leaving = (make_pod("main", name="old"),)
    body = (await bench.get("/klet/v1/pods"))[1]
    decode_strictly(PodListing, body.encode())
    document = json.loads(body)
    assert [pod["metadata"]["name"] for pod in document["items"]] == ["old", "web"]
    assert "old" not in (await bench.get("/pods"))[1]


async def test_pods_are_only_read(bench):
    async with bench.session.post("/pods") as answer:
        assert answer.status == 405


async def test_logs(bench):
    assert await bench.get("/containerLogs/default/web/main?tailLines=5&timestamps") == (200, "hello\nbye\n")
    assert bench.logs.asked == [("id-1", LogQuery(tail_lines=5, timestamps=True))]


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("default/web/main?tail=abc", 400, '{"message": "Unable to decode query."}'),
        ("default/web/main?tail=-1", 422, '{"message": "Invalid request."}'),
        ("default/gone/main", 404, 'pod "gone" does not exist'),
        ("default/web/gone", 404, 'container "gone" not found in pod "web"'),
        ("default/web/main?previous=true", 400, 'previous terminated container "main" in pod "web" not found'),
    ],
)
async def test_logs_that_there_are_not(bench, path, status, body):
    assert await bench.get(f"/containerLogs/{path}") == (status, body)
    assert bench.logs.asked == []


async def test_an_error_while_reading_is_appended(bench):
    bench.logs.error = KletError("the log is gone")
    assert await bench.get("/containerLogs/default/web/main") == (200, "hello\nthe log is gone")


async def test_the_answer_begins_before_the_container_has_said_anything(bench):
    bench.logs.is_silent = True
    async with bench.session.get("/containerLogs/default/web/main?follow=true") as answer:
        assert answer.status == 200


async def test_each_piece_reaches_a_follower_at_once_and_its_end_ends_the_reading(bench):
    async with bench.session.get("/containerLogs/default/web/main?follow=true") as answer:
        assert await answer.content.readline() == b"hello\n"
        assert not bench.logs.ended.is_set()
        answer.close()
    async with asyncio.timeout(PROMPTLY):
        await bench.logs.ended.wait()


@pytest.mark.parametrize("path", ["/containerLogs/default/web/main", "/klet/v1/journal"])
async def test_clients_that_leave_before_the_answer_begins_are_no_error(bench, caplog, path):
    # All come before the loop accepts the first: more than the kernel would let wait by default.
    for _ in range(500):
        with socket.socket(socket.AF_UNIX) as client:
            client.setblocking(False)
            client.connect(str(bench.path))
            client.send(f"GET {path} HTTP/1.1\r\nHost: klet\r\n\r\n".encode())
    assert await bench.get("/healthz") == (200, "ok")
    assert "Error handling request" not in caplog.text


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(b"GET /pods HTTP/1.1\r\nno header\r\n\r\n", id="a header without a colon"),
        pytest.param(b"GET /pods HTTP/9.9.9\r\n\r\n", id="a version that does not exist"),
        pytest.param(b"POST /pods HTTP/1.1\r\nContent-Length: no\r\n\r\n", id="a length that is no number"),
    ],
)
async def test_nonsense_is_refused_and_logged_in_one_line(bench, caplog, request_):
    reader, writer = await asyncio.open_unix_connection(str(bench.path))
    async with asyncio.timeout(PROMPTLY):
        writer.write(request_)
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 400 ")
    reported = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [(record.levelname, record.exc_info) for record in reported] == [("WARNING", None)]
    assert reported[0].getMessage().startswith("Request refused")
    assert await bench.get("/healthz") == (200, "ok")


async def test_a_handler_that_fails_is_logged_with_its_trace(bench, caplog):
    bench.health.errors = None
    status, _ = await bench.get("/healthz")
    assert status == 500
    [reported] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert reported.exc_info is not None


async def test_followers_do_not_keep_the_agent_from_ending(tmp_path):
    bench = Bench(tmp_path / "klet.sock")
    async with bench.session:
        async with serving(bench.listener, bench.path) as task:
            answer = await bench.session.get("/containerLogs/default/web/main?follow=true")
            await answer.content.readline()
            task.cancel()
            async with asyncio.timeout(PROMPTLY):
                await asyncio.wait([task])
        answer.close()
    assert bench.logs.ended.is_set()


async def test_cause_records(bench):
    since = "2030-01-01T00:00:00+00:00"
    answer = await bench.get(f"/klet/v1/journal?namespace=default&name=web&since={since.replace('+', '%2B')}")
    assert (answer[0], answer[1][-1]) == (200, "\n")
    record = decode_strictly(CauseRecord, answer[1].encode())
    assert record.subject == CauseSubject(namespace="default", name="web")
    assert record.since == datetime.fromisoformat(since)
    status, body = await bench.get("/klet/v1/explain/default/web")
    assert (status, decode_strictly(Explanation, body.encode()).pod.name) == (200, "web")
    status, body = await bench.get("/klet/v1/node")
    assert (status, decode_strictly(NodeExplanation, body.encode()).node.name) == (200, "n1")
    assert await bench.get("/klet/v1/explain/default/gone") == (
        404,
        'nothing is recorded about pod "default/gone"',
    )
    assert await bench.get("/klet/v1/explain") == (200, '{"nodeName": "n1", "pods": []}')


@pytest.mark.parametrize(
    ("since", "says"),
    [
        pytest.param("yesterday", 'since: "yesterday" is not an RFC 3339 time with its zone', id="no time"),
        pytest.param("2030-01-01T00:00:00", 'since: "2030-01-01T00:00:00" has no zone', id="no zone"),
    ],
)
async def test_a_time_that_cannot_be_read_is_refused(bench, since, says):
    status, body = await bench.get(f"/klet/v1/journal?since={since}")
    assert status == 400
    assert body.startswith(says)


async def test_cause_records_can_be_followed_until_the_client_leaves(bench):
    async with bench.session.get("/klet/v1/journal?follow=true") as answer:
        record = decode_strictly(CauseRecord, await answer.content.readline())
        assert (record.subject, record.since) == (CauseSubject(), None)
        answer.close()
    async with asyncio.timeout(PROMPTLY):
        await bench.journal.ended.wait()


async def test_what_is_not_there(bench):
    assert (await bench.get("/nothing"))[0] == 404


async def test_the_pulls_that_are_under_way(bench):
    status, body = await bench.get("/klet/v1/pulls")
    listing = decode_strictly(PullListing, body.encode())
    known, unknown = listing.pulls
    assert status == 200
    assert (known.image, known.namespace, known.pod, known.stage) == ("app:1", "default", "web", "fetching")
    assert (known.fetched_bytes, known.total_bytes) == (1 << 20, 4 << 20)
    assert (known.bytes_per_second, known.seconds_left) == (1024.0, 3072.0)
    assert known.summary == "1.0 MiB of 4.0 MiB (25 %), 1.0 KiB/s, 51m12s left"
    assert (unknown.stage, unknown.fetched_bytes, unknown.seconds_left) == ("unknown", None, None)
    assert unknown.summary == "for 1s"


async def test_the_machine_is_served_as_it_is_declared(bench):
    status, text = await bench.get(TOPOLOGY)
    assert (status, decode_strictly(MachineTopology, text.encode())) == (200, MACHINE)


async def test_images_and_the_preview_of_their_collection_are_served_as_they_are_declared(bench):
    for path, cls in ((IMAGES, NodeImageListing), (IMAGE_GC, ImageGcPreview)):
        status, text = await bench.get(path)
        assert status == 200
        expected = await (bench.images.images() if cls is NodeImageListing else bench.images.preview())
        assert decode_strictly(cls, text.encode()) == expected


async def test_without_the_runtime_there_are_no_images_and_the_answer_says_why(bench):
    bench.images.error = KletError("connection refused")
    assert await bench.get(IMAGES) == (503, "connection refused")
    assert await bench.get(IMAGE_GC) == (503, "connection refused")


POD_MANIFEST = b"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: i}]}\n"


async def test_whether_the_pod_of_a_manifest_fits(bench):
    async with bench.session.post(FIT, data=POD_MANIFEST) as answer:
        found = decode_strictly(FitAnswer, await answer.read())
        assert (answer.status, found.fits, found.pod.name) == (200, True, "web-machine")
    async with bench.session.post(f"{FIT}?source=api", data=POD_MANIFEST) as answer:
        assert answer.status == 200
    assert [pod.metadata.name for pod in bench.fit.asked] == ["web-machine", "web"]


@pytest.mark.parametrize(
    ("query", "body", "status", "text"),
    [
        pytest.param("", b"kind: Service\n", 400, "'Service' is not Pod", id="no pod"),
        pytest.param("", b"", 400, "the text is not an object", id="nothing"),
        pytest.param("?source=url", POD_MANIFEST, 400, 'source: "url" is neither static nor api', id="no such source"),
        pytest.param("", b" " * (2 << 20), 413, "Too Large", id="longer than any request"),
    ],
)
async def test_what_is_no_manifest_of_a_pod(bench, query, body, status, text):
    async with bench.session.post(f"{FIT}{query}", data=io.BytesIO(body)) as answer:
        assert answer.status == status
        assert text in await answer.text()
    assert bench.fit.asked == []
