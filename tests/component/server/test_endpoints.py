"""Every row of the table of endpoints, asked for over the network: who is refused, what is there."""

import asyncio
import re

import aiohttp
import pytest

from klet.aio.clock import SystemClock
from klet.api.klet_v1_topology import MachineTopology
from klet.model.verbosity import CHANGES
from klet.server.endpoint_types import EndpointSupport, HandlerSwitch, ListenerKind, WithoutDebugging
from klet.server.endpoints import ENDPOINT_GROUPS
from klet.server.listener import HealthListener, ListenAddress, ReadOnlyListener, listen_on
from klet.server.routes.fit import FitRoutes
from klet.server.routes.images import ImageRoutes
from klet.server.routes.klet import KletRoutes
from klet.server.routes.pulls import PullRoutes

VALUES = {"namespace": "default", "pod": "web", "container": "main", "uid": "web-uid"}
VALUES |= {"path": "messages", "profile": "cmdline"}
VERBS = {"GET": "get", "POST": "create", "PUT": "update", "DELETE": "delete"}
ROWS = [
    (group, endpoint, method, re.sub(r"{(\w+)(?::[^{}]*)?}", lambda found: VALUES.get(found[1], "x"), path))
    for group in ENDPOINT_GROUPS
    for endpoint in group.endpoints
    for path in endpoint.paths
    for method in endpoint.methods or VERBS
]
KNOWN = [row for row in ROWS if row[1].support is not EndpointSupport.GATED]
NOTHING_THERE = (404, "404: Page Not Found")
NO_PATH = (404, "404 page not found\n")


class Denies:
    """Lets nobody do anything, and notes what was asked."""

    def __init__(self):
        self.asked = []

    async def allows(self, user, verb, subresource):
        self.asked.append((user.name, verb, subresource))
        return False


def right_of(group, method):
    """What must be asked for: the verb, and each subresource that would be enough."""
    verb = "create" if group.right.is_create else VERBS[method]
    return verb, [group.right.subresource, "proxy"] if group.right.or_proxy else [group.right.subresource]


def all_routes(kubelet):
    """Also those of klet's own API, which no port has."""
    own = (
        KletRoutes(pods=kubelet.pods, journal=None, topology=lambda: MachineTopology(node="node")),
        PullRoutes(pulls=None, clock=None),
        ImageRoutes(images=None),
        FitRoutes(manifests=None, fit=None),
    )
    return (*kubelet.routes, *own)


async def ask(session, rows):
    answers = {}
    for _, _, method, path in rows:
        async with session.request(method, path, allow_redirects=False) as answer:
            answers[method, path] = answer.status, await answer.text()
    return answers


@pytest.mark.parametrize("credentials", [None, "Bearer nonsense", "Basic eDp5"])
async def test_who_is_unknown_is_refused_everywhere(start, credentials):
    authorizer = Denies()
    headers = {"Authorization": credentials} if credentials else {}
    async with start(authorizer=authorizer) as kubelet, kubelet.session(None, headers=headers) as session:
        answers = await ask(session, KNOWN)
    assert answers == dict.fromkeys(answers, (401, "Unauthorized"))
    assert authorizer.asked == []


@pytest.mark.parametrize(("name", "user"), [("admin", "admin"), (None, "system:anonymous")])
async def test_who_lacks_the_right_of_the_row_is_refused(start, name, user):
    authorizer = Denies()
    async with start(authorizer=authorizer, allows_anonymous=True) as kubelet, kubelet.session(name) as session:
        for row in KNOWN:
            group, _, method, path = row
            verb, subresources = right_of(group, method)
            authorizer.asked.clear()
            [(status, body)] = (await ask(session, [row])).values()
            assert (method, path, status) == (method, path, 403)
            assert f"user={user}, verb={verb}, resource=nodes, subresource(s)=[{' '.join(subresources)}]" in body
            assert authorizer.asked == [(user, verb, each) for each in subresources]


async def test_the_api_serves_what_the_table_says(kubelet):
    async with kubelet.session() as session:
        answers = await ask(session, ROWS)
    for group, endpoint, method, path in ROWS:
        answer = answers[method, path]
        if endpoint.support is EndpointSupport.GATED:
            assert (path, answer) == (path, NO_PATH)
        elif endpoint.support is EndpointSupport.NOT_YET:
            assert (path, answer[0]) == (path, 404)
        elif ListenerKind.API not in group.listeners_of(endpoint):
            assert (path, answer) == (path, NOTHING_THERE)
        else:
            assert answer[0] in {200, 400, 406, 500}, path  # streams miss their upgrade, others their body


async def test_without_debugging_the_api_serves_what_the_table_says(start):
    async with start(has_debugging=False) as kubelet, kubelet.session() as session:
        answers = await ask(session, ROWS)
    assert_without_debugging(answers, ListenerKind.API)


async def test_the_read_only_port_serves_what_the_table_says(kubelet, logged):
    taken = listen_on(ListenAddress(host="127.0.0.1", port=0, name="address, readOnlyPort"))
    listener = ReadOnlyListener(listener=taken, routes=all_routes(kubelet), clock=SystemClock())
    async with asyncio.TaskGroup() as group:
        async with logged("read-only"):
            task = group.create_task(listener.run())
        async with aiohttp.ClientSession(f"http://127.0.0.1:{taken.getsockname()[1]}") as session:
            answers = await ask(session, ROWS)
        task.cancel()
    assert_without_debugging(answers, ListenerKind.READ_ONLY)


async def test_the_port_of_health_serves_what_the_table_says(kubelet, unused_tcp_port, logged):
    address = ListenAddress(host="127.0.0.1", port=unused_tcp_port, name="healthzBindAddress, healthzPort")
    listener = HealthListener(address=address, routes=all_routes(kubelet), clock=SystemClock())
    async with asyncio.TaskGroup() as group:
        async with logged("Serving health"):
            task = group.create_task(listener.run())
        async with aiohttp.ClientSession(f"http://127.0.0.1:{unused_tcp_port}") as session:
            answers = await ask(session, ROWS)
        task.cancel()
    assert answers == {
        (method, path): (200, "ok") if ListenerKind.HEALTH in group.listeners_of(endpoint) else NO_PATH
        for group, endpoint, method, path in ROWS
    }


def test_every_handler_is_found_among_the_routes(kubelet):
    routes = (*all_routes(kubelet), *kubelet.gated)
    rows = [(endpoint.find_handler, path) for _, endpoint, _, path in ROWS if endpoint.find_handler is not None]
    assert [path for find, path in rows if find(routes) is None] == []
    assert [path for find, path in rows if find(()) is not None] == []


def assert_without_debugging(answers, kind):
    for group, endpoint, method, path in ROWS:
        answer = answers[method, path]
        if endpoint.support is EndpointSupport.GATED or group.without_debugging is WithoutDebugging.GONE:
            assert (path, answer) == (path, NO_PATH)
        elif group.without_debugging is WithoutDebugging.REFUSED:
            assert (path, answer) == (path, (405, "Debug endpoints are disabled.\n"))
        elif endpoint.support is EndpointSupport.NOT_YET:
            assert (path, answer[0]) == (path, 404)
        else:
            is_served = kind in group.listeners_of(endpoint)
            assert (path, answer[0]) == (path, 200 if is_served else 404)


async def test_requests_are_logged_from_verbosity_3_on_without_their_query(kubelet, caplog):
    caplog.set_level(CHANGES, logger="klet.server.application")
    async with kubelet.session(headers={"User-Agent": "x" * 1000}) as session:
        await ask(session, [(None, None, "GET", "/pods?password=hunter2"), (None, None, "GET", "/" + "y" * 1000)])
    [first, second] = [each for each in caplog.records if each.message == "HTTP"]
    assert (first.levelno, first.verb, first.URI, first.resp, first.srcIP) == (
        CHANGES,
        "GET",
        "/pods",
        200,
        "127.0.0.1",
    )
    assert first.latency.endswith("ms")
    assert second.resp == 404
    assert max(len(second.URI), len(second.userAgent)) <= 256
    assert "hunter2" not in str([vars(each) for each in caplog.records])


async def test_with_their_gates_on_there_are_their_paths_for_who_has_the_right(start):
    rows = [row for row in ROWS if row[1].support is EndpointSupport.GATED]
    async with start(with_gates=True) as kubelet, kubelet.session() as session:
        answers = await ask(session, rows)
    assert {key: status for key, (status, _) in answers.items()} == {("GET", "/flagz"): 200, ("GET", "/statusz"): 200}


async def test_with_their_gates_on_who_lacks_the_right_is_refused(start):
    authorizer = Denies()
    rows = [row for row in ROWS if row[1].support is EndpointSupport.GATED]
    async with start(with_gates=True, authorizer=authorizer) as kubelet:
        async with kubelet.session() as session:
            assert [status for status, _ in (await ask(session, rows)).values()] == [403, 403]
        async with kubelet.session(None) as session:
            assert [status for status, _ in (await ask(session, rows)).values()] == [401, 401]
    assert authorizer.asked == [("admin", "get", "configz"), ("admin", "get", "statusz")]


async def test_without_debugging_the_flags_are_gone_and_the_status_stays(start):
    async with start(with_gates=True, has_debugging=False) as kubelet:
        assert await kubelet.get("/flagz") == NO_PATH
        assert (await kubelet.get("/statusz"))[0] == 200


@pytest.mark.parametrize(
    ("switch", "path"),
    [
        (HandlerSwitch.LOGS, "/logs/"),
        (HandlerSwitch.LOGS, "/logs/messages"),
        (HandlerSwitch.LOGS, "/logs/a%0Ab/c"),
        (HandlerSwitch.PROFILING, "/debug/pprof/profile"),
        (HandlerSwitch.PROFILING, "/debug/pprof/"),
        (HandlerSwitch.FLAGS, "/debug/flags/v"),
    ],
)
async def test_what_the_configuration_switches_off_is_refused_in_every_method(start, switch, path):
    async with start(switched_off=frozenset({switch})) as kubelet:
        for method in VERBS:
            assert await kubelet.get(path, method=method) == (405, str(switch))
        assert (await kubelet.get("/pods"))[0] == 200
