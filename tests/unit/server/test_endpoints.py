"""The table of endpoints: it lists what upstream's kubelet has, and holds together."""

import re

import pytest

from klet.server.auth.gate import Turned
from klet.server.endpoints import AREAS, Door, Right, Standing, WithoutDebugging
from klet.server.guard import build_application
from klet.server.places import PathLabels, label_path

C = "/{namespace}/{pod}/{container}"
U = "/{namespace}/{pod}/{uid}/{container}"
ANY, GET, POST, STREAM = (), ("GET",), ("POST",), ("GET", "POST")
READ = {Door.API, Door.READERS, Door.SOCKET}
DEBUG = {Door.API, Door.SOCKET}
EVERYWHERE = set(Door)
KEPT, REFUSED, GONE = WithoutDebugging.KEPT, WithoutDebugging.REFUSED, WithoutDebugging.GONE
SERVED, NOT_YET, GATED = Standing.SERVED, Standing.NOT_YET, Standing.GATED
UPSTREAM = {
    **dict.fromkeys(("/healthz", "/healthz/ping"), (ANY, EVERYWHERE, KEPT, SERVED)),
    **dict.fromkeys(("/healthz/log", "/healthz/syncloop"), (ANY, READ, KEPT, SERVED)),
    "/healthz/device-plugin": (ANY, READ, KEPT, NOT_YET),
    **dict.fromkeys(("/pods", "/pods/"), (GET, READ, KEPT, SERVED)),
    **dict.fromkeys(("/stats/summary", "/stats/summary/"), (STREAM, READ, KEPT, NOT_YET)),
    "/metrics": (ANY, READ, KEPT, SERVED),
    **dict.fromkeys(("/metrics/cadvisor", "/metrics/resource"), (ANY, READ, KEPT, NOT_YET)),
    **dict.fromkeys(("/metrics/probes", "/metrics/slis"), (ANY, READ, KEPT, NOT_YET)),
    **{f"/run{rest}": (POST, DEBUG, REFUSED, SERVED) for rest in (C, U)},
    **{f"/exec{rest}": (STREAM, DEBUG, REFUSED, SERVED) for rest in (C, U)},
    **{f"/attach{rest}": (STREAM, DEBUG, REFUSED, SERVED) for rest in (C, U)},
    **{
        f"/portForward{rest}": (STREAM, DEBUG, REFUSED, SERVED)
        for rest in ("/{namespace}/{pod}", "/{namespace}/{pod}/{uid}")
    },
    f"/containerLogs{C}": (GET, DEBUG, REFUSED, SERVED),
    "/configz": (ANY, DEBUG, GONE, SERVED),
    "/runningpods/": (GET, DEBUG, REFUSED, SERVED),
    f"/checkpoint{C}": (POST, DEBUG, GONE, NOT_YET),
    **dict.fromkeys(("/logs/", "/logs/{path}", "/debug/pprof/{profile}"), (GET, DEBUG, REFUSED, NOT_YET)),
    "/debug/flags/v": (("PUT",), DEBUG, GONE, NOT_YET),
    "/flagz": (GET, DEBUG, GONE, GATED),
    "/statusz": (GET, READ, KEPT, GATED),
}
"""Every path of upstream's kubelet, and whether klet has it."""
ENDPOINTS = [(area, endpoint, path) for area in AREAS for endpoint in area.endpoints for path in endpoint.paths]
RIGHTS = {
    "healthz": Right("healthz", or_proxy=True),
    "pods": Right("pods", or_proxy=True),
    "runningpods": Right("pods", or_proxy=True),
    "configz": Right("configz", or_proxy=True),
    "stats": Right("stats"),
    "metrics": Right("metrics"),
    "logs": Right("log"),
    "checkpoint": Right("checkpoint"),
    "statusz": Right("statusz"),
    "flagz": Right("configz"),
    **{name: Right("proxy", is_create=True) for name in ("exec", "attach", "run", "portForward")},
    **{name: Right("proxy") for name in ("containerLogs", "debug", "klet")},
}


def test_every_path_of_upstream_is_listed_with_what_klet_has_of_it():
    listed = {
        path: (endpoint.methods, set(area.doors_of(endpoint)), area.without_debugging, endpoint.standing)
        for area, endpoint, path in ENDPOINTS
        if area.root != "/klet"
    }
    assert listed == UPSTREAM


def test_no_path_is_listed_twice():
    assert len({path for _, _, path in ENDPOINTS}) == len(ENDPOINTS)


def test_what_is_served_has_a_handler():
    assert [path for _, endpoint, path in ENDPOINTS if endpoint.standing is SERVED and not endpoint.find_handler] == []


def test_paths_are_below_the_root_of_their_area():
    for area, _, path in ENDPOINTS:
        assert path == area.root or path.startswith(area.root.removesuffix("/") + "/")


@pytest.mark.parametrize("name", RIGHTS)
def test_one_right_for_all_that_begins_alike(name):
    assert {area.right for area in AREAS if area.segments[0] == name} == {RIGHTS[name]}


def test_there_are_no_other_rights():
    assert {area.segments[0] for area in AREAS} == RIGHTS.keys()


def test_klets_own_paths_are_on_the_socket_alone():
    own = [(area.doors_of(endpoint), path) for area, endpoint, path in ENDPOINTS if "klet" in path]
    assert {doors for doors, _ in own} == {frozenset({Door.SOCKET})}
    assert all(path.startswith("/klet/v1/") for _, path in own)


@pytest.mark.parametrize(
    ("path", "labels"),
    [
        ("/pods", PathLabels("pods")),
        ("/pods/whatever/a/client/writes", PathLabels("pods")),
        ("/exec/a/b/c", PathLabels("exec", is_long_running=True)),
        ("/portForward/a/b", PathLabels("portForward")),
        ("/debug/pprof/heap", PathLabels("debug", is_long_running=True)),
        ("/metrics", PathLabels("metrics")),
        ("/metrics/cadvisor", PathLabels("metrics/cadvisor")),
        ("/metrics/slis", PathLabels("other")),
        ("/metrics/unknown", PathLabels("other")),
        ("/klet/v1/explain/a/b", PathLabels("klet")),
        ("/statusz", PathLabels("other")),
        ("/anything", PathLabels("other")),
        ("*", PathLabels("other")),
    ],
)
def test_labels_of_metrics(path, labels):
    assert label_path(path) == labels


def test_labels_are_words_of_the_table():
    words = {area.label for area in AREAS} | {endpoint.label for _, endpoint, _ in ENDPOINTS} - {""}
    assert all(re.fullmatch(r"[a-zA-Z]+(/[a-z]+)?", word) for word in words)
    hostile = [f"/{name}/x{number}" for name in RIGHTS for number in range(50)]
    assert {label_path(path).path for path in hostile} <= words


class Closed:
    """A gate that lets nobody in."""

    async def admit(self, asked):  # noqa: ARG002 - the signature of a gate
        return Turned(401, "Unauthorized")


@pytest.mark.parametrize("door", Door)
def test_only_the_api_asks_who_it_is_and_it_always_does(door):
    with pytest.raises(ValueError, match="against the table"):
        build_application((), door=door, gate=None if door is Door.API else Closed())
