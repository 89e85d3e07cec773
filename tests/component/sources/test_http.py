"""The URL source against a server on the loopback."""

import asyncio
import gzip
import logging
from datetime import timedelta

import pytest
from aiohttp import web

from klet.sources.decode import MAX_MANIFEST
from klet.sources.http import HttpSource, url_origin

PERIOD = timedelta(seconds=20)


def manifest(name: str) -> bytes:
    pod = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: a, image: 'b:1'}}]}}\n"
    return pod.encode()


class Server:
    """Answers with whatever it was reported."""

    def __init__(self) -> None:
        self.body = b""
        self.status = 200
        self.headers = {}
        self.requests = []

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        return web.Response(status=self.status, body=self.body, headers=self.headers)


@pytest.fixture
async def server():
    server = Server()
    app = web.Application()
    app.router.add_get("/pods", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/pods?token=secret"
    server.stop = runner.cleanup
    yield server
    await runner.cleanup()


@pytest.fixture
def start(running, server, sink, journal, threads, clock):
    def start(**headers) -> None:
        running(
            HttpSource(
                origin=url_origin(server.url, node_name="n"),
                headers=headers,
                every=PERIOD,
                sink=sink,
                recorder=journal,
                threads=threads,
                clock=clock,
            )
        )

    return start


@pytest.fixture
def poll(clock):
    """Lets the next poll happen and waits for its end."""

    async def poll() -> None:
        async with asyncio.timeout(10):
            await clock.until_asleep()
            clock.advance(PERIOD)
            await clock.until_asleep()

    return poll


async def test_a_pod_is_read_with_the_headers(server, start, sink):
    server.body = manifest("web")
    start(**{"X-One": ["a", "b"], "X-Two": ["c"]})
    assert await sink.until(1) == ["web-n"]
    assert sink.sets[0][0] == "http"
    assert server.requests[0].headers.getall("X-One") == ["a", "b"]
    assert server.requests[0].headers["X-Two"] == "c"


async def test_a_header_counts_more_than_a_login_in_the_url(server, start, sink):
    server.body = manifest("web")
    server.url = server.url.replace("http://", "http://user:password@")
    start(Authorization=["Bearer token"])
    assert await sink.until(1) == ["web-n"]
    assert server.requests[0].headers["Authorization"] == "Bearer token"


async def test_a_compressed_answer_is_neither_asked_for_nor_unpacked(server, start, sink, poll, journal):
    server.body = gzip.compress(manifest("web") + b"#" * 100_000_000)
    server.headers = {"Content-Encoding": "gzip"}
    start()
    await poll()
    assert server.requests[0].headers["Accept-Encoding"] == "identity"
    assert sink.sets == []
    [cause] = journal.all()
    assert "the answer is compressed, which was not asked for" in cause.finding.message


async def test_a_list_is_read_and_a_change_is_seen(server, start, sink, poll):
    server.body = b'{"apiVersion":"v1","kind":"PodList","items":[]}'
    start()
    assert await sink.until(1) == []
    server.body = manifest("web")
    await poll()
    assert await sink.until(2) == ["web-n"]


async def test_the_same_body_says_nothing(server, start, sink, poll):
    server.body = manifest("web")
    start()
    await sink.until(1)
    await poll()
    await poll()
    assert len(server.requests) == 3
    assert len(sink.sets) == 1


async def test_an_empty_body_is_an_error_and_no_pods(server, start, sink, poll, caplog):
    server.body = manifest("web")
    start()
    await sink.until(1)
    server.body = b""
    await poll()
    assert await sink.until(2) == []
    assert "zero-length data received from http://127.0.0.1" in caplog.records[0].error
    server.body = manifest("web")
    await poll()
    assert await sink.until(3) == ["web-n"]


async def test_another_status_keeps_the_pods(server, start, sink, poll, journal, caplog):
    server.body = manifest("web")
    start()
    await sink.until(1)
    server.status = 503
    await poll()
    assert len(sink.sets) == 1
    assert caplog.records[0].error == f"{server.url.partition('?')[0]}: 503 Service Unavailable"
    server.status = 200
    await poll()
    assert await journal.reported() == ["SourceUnavailable", "SourceAvailable"]


async def test_a_bad_body_is_reported_once_and_keeps_the_pods(server, start, sink, poll, journal):
    server.body = manifest("web")
    start()
    await sink.until(1)
    server.body = b"kind: Service"
    await poll()
    await poll()
    assert len(sink.sets) == 1
    assert await journal.reported() == ["ManifestRejected"]
    server.body = manifest("db")
    await poll()
    assert await sink.until(2) == ["db-n"]
    assert await journal.reported() == ["ManifestRejected", "ManifestSettled"]


async def test_if_one_pod_is_invalid_the_whole_list_is_rejected(server, start, sink, poll, journal):
    server.body = b'{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{}}]}'
    start()
    await poll()
    assert sink.sets == []
    assert await journal.reported() == ["ManifestRejected"]


async def test_a_body_without_end_is_refused(server, start, sink, poll, caplog):
    server.body = b"x" * (MAX_MANIFEST + 1)
    start()
    await poll()
    assert sink.sets == []
    assert "longer than" in caplog.records[0].error


async def test_many_failures_get_quiet_and_their_end_is_reported(server, start, sink, poll, caplog):
    caplog.set_level(logging.DEBUG, logger="klet")
    server.status = 404
    start()
    for _ in range(5):
        await poll()
    server.status, server.body = 200, manifest("web")
    await poll()
    assert await sink.until(1) == ["web-n"]
    reported = [(record.levelname, record.getMessage()) for record in caplog.records if record.name.startswith("klet.")]
    assert reported == [
        *[("WARNING", "Manifests not read from the URL")] * 3,
        ("WARNING", "Manifests not read from the URL, dropping verbosity"),
        *[("DEBUG", "Manifests not read from the URL")] * 2,
        ("INFO", "Manifests read from the URL again"),
    ]


async def test_no_server_is_a_failure_that_shows_no_secret(server, start, sink, poll, caplog):
    await server.stop()
    start()
    await poll()
    assert sink.sets == []
    assert "secret" not in caplog.text + str([record.__dict__ for record in caplog.records])
    assert "ClientConnectorError: Connect" in caplog.records[0].error
