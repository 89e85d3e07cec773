"""The paths of the kubelet API, and its answers to the letter."""

import asyncio
import json
import os
import re
import socket
from datetime import timedelta

import aiohttp
import pytest
from yarl import URL

from klet.aio.clock import SystemClock
from klet.server.listener import HealthListener, ListenAddress, ListenError, ReadOnlyListener, listen_on
from klet.testing.clock import ManualClock


async def answer(kubelet, path, method="GET", **options):
    async with kubelet.session() as session, session.request(method, path, allow_redirects=False, **options) as got:
        return got.status, got.headers, await got.text()


@pytest.mark.parametrize("path", ["/", "/livez", "/spec/", "/version", "/healthz/unknown", "/metrics/", "/configz/"])
async def test_paths_that_there_are_not(kubelet, path):
    status, headers, body = await answer(kubelet, path)
    assert (status, body, headers["X-Content-Type-Options"]) == (404, "404 page not found\n", "nosniff")
    assert headers["Content-Type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("path", ["/exec/", "/containerLogs/default/web", "/pods/web", "/run/x", "/debug/pprof/"])
async def test_paths_that_there_might_be(kubelet, path):
    assert (await answer(kubelet, path))[::2] == (404, "404: Page Not Found")


@pytest.mark.parametrize("path", ["/stats", "/logs", "/runningpods", "/checkpoint", "/debug/pprof"])
async def test_paths_that_need_a_slash(kubelet, path):
    status, headers, _ = await answer(kubelet, f"{path}?a=b")
    assert (status, headers["Location"]) == (307, f"{path}/?a=b")


@pytest.mark.parametrize(
    ("path", "method", "allow"),
    [
        ("/pods", "POST", "GET"),
        ("/pods", "HEAD", "GET"),
        ("/runningpods/", "DELETE", "GET"),
        ("/containerLogs/default/web/main", "POST", "GET"),
        ("/run/default/web/main", "GET", "POST"),
        ("/exec/default/web/main", "PUT", "GET, POST"),
        ("/portForward/default/web", "DELETE", "GET, POST"),
    ],
)
async def test_methods(kubelet, path, method, allow):
    status, headers, body = await answer(kubelet, path, method)
    assert (status, headers["Allow"]) == (405, allow)
    assert body == ("405: Method Not Allowed" if method != "HEAD" else "")


async def test_health(kubelet):
    assert await kubelet.get("/healthz?verbose") == (
        200,
        "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n",
    )
    assert await kubelet.get("/healthz/log", method="POST") == (200, "ok")
    kubelet.health.errors["syncloop"] = "sync Loop took longer than expected"
    assert (await kubelet.get("/healthz"))[0] == 500


async def test_running_pods(kubelet):
    status, body = await kubelet.get("/runningpods/")
    document = json.loads(body)
    [pod] = document["items"]
    assert (status, document["kind"], document["apiVersion"]) == (200, "PodList", "v1")
    assert pod["metadata"] == {"name": "web", "namespace": "default", "uid": "web-uid"}
    assert [container["name"] for container in pod["spec"]["containers"]] == ["main"]


async def test_configuration(kubelet):
    status, headers, body = await answer(kubelet, "/configz")
    assert (status, body) == (200, '{"kubeletconfig":{"port":10250}}')
    assert (headers["Content-Type"], headers["X-Content-Type-Options"]) == ("application/json", "nosniff")


async def test_run(kubelet):
    status, headers, _ = await answer(kubelet, "/run/default/web/main?cmd=ls+-l", "POST")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    [wanted] = [call.request for call in kubelet.runtime.calls if call.rpc == "ExecSync"]
    assert list(wanted.cmd) == ["ls", "-l"]
    assert await kubelet.get("/run/default/gone/main?cmd=ls", method="POST") == (404, "pod does not exist")
    assert await kubelet.get("/run/default/web/gone?cmd=ls", method="POST") == (500, 'container not found ("gone")')


@pytest.mark.parametrize("path", ["/pods", "/runningpods/"])
async def test_only_json_is_offered(kubelet, path):
    status, _, body = await answer(kubelet, path, headers={"Accept": "text/html"})
    assert (status, body.startswith("406: Not Acceptable")) == (406, True)
    for accept in ("*/*", "application/json", "text/html, application/json;q=0.5"):
        assert (await answer(kubelet, path, headers={"Accept": accept}))[0] == 200


async def test_logs(kubelet):
    assert await kubelet.get("/containerLogs/default/web/main") == (200, "hello\n")
    assert await kubelet.get("/containerLogs/default/gone/main") == (404, 'pod "gone" does not exist')


async def test_one_stream_of_a_log_needs_the_gate_and_comes_after_pod_and_container(start):
    refusal = (
        'unable to return the given log stream: "Stdout". '
        "Please enable PodLogsQuerySplitStreams feature gate in kubelet"
    )
    async with start() as kubelet:
        assert await kubelet.get("/containerLogs/default/web/main?stream=Stdout") == (400, refusal)
        assert await kubelet.get("/containerLogs/default/web/main?stream=All") == (200, "hello\n")
        assert (await kubelet.get("/containerLogs/default/gone/main?stream=Stdout"))[0] == 404
        assert (await kubelet.get("/containerLogs/default/web/none?stream=Stdout"))[0] == 404
        assert (await kubelet.get("/containerLogs/default/web/none?stream=x"))[0] == 422
    async with start(splits_streams=True) as kubelet:
        assert await kubelet.get("/containerLogs/default/web/main?stream=Stdout") == (200, "hello\n")


async def test_without_debugging(start):
    async with start(has_debugging=False) as kubelet:
        for path in (
            "/run/a/b/c",
            "/exec/a",
            "/attach/",
            "/portForward/a/b",
            "/containerLogs/default/web/main",
            "/runningpods/",
            "/debug/pprof/heap",
            "/logs/",
        ):
            assert await kubelet.get(path) == (405, "Debug endpoints are disabled.\n")
        assert await kubelet.get("/configz") == (404, "404 page not found\n")
        assert (await kubelet.get("/pods"))[0] == 200


@pytest.mark.parametrize(
    "path", ["/containerLogs/default/web/main%0A", "/containerLogs/default/web%0A/main", "/exec/%0A", "/logs/a%0Ab%0A"]
)
async def test_without_debugging_a_line_break_is_a_character_like_any_other(start, path):
    async with start(has_debugging=False) as kubelet:
        assert await kubelet.get(URL(path, encoded=True)) == (405, "Debug endpoints are disabled.\n")


async def test_a_port_that_is_taken(kubelet):
    address = ListenAddress(host="127.0.0.1", port=kubelet.port, name="address, port")
    reported = (
        rf"^cannot listen on 127\.0\.0\.1:{kubelet.port} \(address, port\): \S+ \(pid {os.getpid()}\) has the port: "
    )
    with pytest.raises(ListenError, match=reported):
        listen_on(address)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        pytest.param("192.0.2.1", "cannot listen on 192.0.2.1:1 (address): this machine has no such address", id="v4"),
        pytest.param("2001:db8::1", "cannot listen on [2001:db8::1]:1 (address): ", id="v6"),
    ],
)
def test_an_address_of_another_machine(host, expected):
    with pytest.raises(ListenError, match=f"^{re.escape(expected)}"):
        listen_on(ListenAddress(host=host, port=1, name="address"))


async def test_the_read_only_listener(kubelet, logged):
    taken = listen_on(ListenAddress(host="127.0.0.1", port=0, name="address, readOnlyPort"))
    async with asyncio.TaskGroup() as group:
        async with logged("read-only"):
            task = group.create_task(ReadOnlyListener(listener=taken, routes=kubelet.routes, clock=SystemClock()).run())
        async with aiohttp.ClientSession(f"http://127.0.0.1:{taken.getsockname()[1]}") as session:
            for path, expected in (
                ("/healthz/syncloop", (200, "ok")),
                ("/exec/default/web/main", (405, "Debug endpoints are disabled.\n")),
                ("/containerLogs/default/web/main", (405, "Debug endpoints are disabled.\n")),
                ("/configz", (404, "404 page not found\n")),
            ):
                async with session.get(path) as got:
                    assert (got.status, await got.text()) == expected
            async with session.get("/pods") as got:
                assert [each["metadata"]["name"] for each in (await got.json())["items"]] == ["web"]
        task.cancel()


async def test_the_health_listener(kubelet, unused_tcp_port, logged):
    address = ListenAddress(host="127.0.0.1", port=unused_tcp_port, name="healthzBindAddress, healthzPort")
    listener = HealthListener(address=address, routes=kubelet.routes, clock=SystemClock())
    async with asyncio.TaskGroup() as group:
        async with logged("Serving health"):
            task = group.create_task(listener.run())
        async with aiohttp.ClientSession(f"http://127.0.0.1:{unused_tcp_port}") as session:
            for path, expected in (
                ("/healthz", (200, "ok")),
                ("/healthz/ping", (200, "ok")),
                ("/pods", (404, "404 page not found\n")),
                ("/healthz/log", (404, "404 page not found\n")),
            ):
                async with session.get(path) as got:
                    assert (got.status, await got.text()) == expected
        task.cancel()


async def test_a_port_of_health_that_is_taken_is_tried_again(kubelet, unused_tcp_port, logged):
    clock = ManualClock()
    address = ListenAddress(host="127.0.0.1", port=unused_tcp_port, name="healthzBindAddress, healthzPort")
    listener = HealthListener(address=address, routes=kubelet.routes, clock=clock)
    async with asyncio.TaskGroup() as group:
        with socket.create_server(("127.0.0.1", unused_tcp_port)):
            task = group.create_task(listener.run())
            await clock.until_asleep()
        async with logged("Serving health"):
            clock.advance(timedelta(seconds=5))
        task.cancel()


def test_leading_zeros_of_an_address_are_no_octal_numbers():
    with listen_on(ListenAddress(host="0127.0.0.01", port=0, name="address, port")) as taken:
        assert taken.getsockname()[0] == "127.0.0.1"


async def test_no_response_names_the_server_software(kubelet):
    async with kubelet.session(None) as session, session.get("/pods") as answer:
        assert answer.status == 401
        assert "Server" not in answer.headers
