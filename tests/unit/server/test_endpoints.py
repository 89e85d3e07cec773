"""The table of endpoints: it lists what upstream's kubelet has, and holds together."""

import re
from pathlib import Path

import pytest

import klet
from klet.server.application import build_application
from klet.server.auth.filter import AuthRefusal
from klet.server.endpoint_types import EndpointSupport, ListenerKind, Right, WithoutDebugging
from klet.server.endpoints import ENDPOINT_GROUPS
from klet.server.paths import PathLabels, label_path

SOURCE = Path(klet.__file__).parent
C = "/{namespace}/{pod}/{container}"
U = "/{namespace}/{pod}/{uid}/{container}"
ANY, GET, POST, STREAM = (), ("GET",), ("POST",), ("GET", "POST")
READ = {ListenerKind.API, ListenerKind.READ_ONLY, ListenerKind.SOCKET}
DEBUG = {ListenerKind.API, ListenerKind.SOCKET}
EVERYWHERE = set(ListenerKind)
KEPT, REFUSED, GONE = WithoutDebugging.KEPT, WithoutDebugging.REFUSED, WithoutDebugging.GONE
SERVED, NOT_YET, GATED = EndpointSupport.SERVED, EndpointSupport.NOT_YET, EndpointSupport.GATED
UPSTREAM = {
    **dict.fromkeys(("/healthz", "/healthz/ping"), (ANY, EVERYWHERE, KEPT, SERVED)),
    **dict.fromkeys(("/healthz/log", "/healthz/syncloop"), (ANY, READ, KEPT, SERVED)),
    "/healthz/device-plugin": (ANY, READ, KEPT, NOT_YET),
    **dict.fromkeys(("/pods", "/pods/"), (GET, READ, KEPT, SERVED)),
    **dict.fromkeys(("/stats/summary", "/stats/summary/"), (STREAM, READ, KEPT, SERVED)),
    "/metrics": (ANY, READ, KEPT, SERVED),
    **dict.fromkeys(("/metrics/cadvisor", "/metrics/resource"), (ANY, READ, KEPT, SERVED)),
    **dict.fromkeys(("/metrics/probes", "/metrics/slis"), (ANY, READ, KEPT, SERVED)),
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
    f"/checkpoint{C}": (POST, DEBUG, GONE, SERVED),
    **dict.fromkeys(("/logs/", "/logs/{path:(?s:.+)}", "/debug/pprof/{profile}"), (GET, DEBUG, REFUSED, SERVED)),
    "/debug/flags/v": (ANY, DEBUG, GONE, SERVED),
    "/flagz": (GET, DEBUG, GONE, GATED),
    "/statusz": (GET, READ, KEPT, GATED),
}
"""Every path of upstream's kubelet, and whether klet has it."""
ENDPOINTS = [
    (group, endpoint, path) for group in ENDPOINT_GROUPS for endpoint in group.endpoints for path in endpoint.paths
]
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
        path: (endpoint.methods, set(group.listeners_of(endpoint)), group.without_debugging, endpoint.support)
        for group, endpoint, path in ENDPOINTS
        if group.root != "/klet"
    }
    assert listed == UPSTREAM


def test_no_path_is_listed_twice():
    assert len({path for _, _, path in ENDPOINTS}) == len(ENDPOINTS)


def test_what_is_served_has_a_handler():
    served = {SERVED, GATED}
    assert [path for _, endpoint, path in ENDPOINTS if endpoint.support in served and not endpoint.find_handler] == []


def test_paths_are_below_the_root_of_their_group():
    for group, _, path in ENDPOINTS:
        assert path == group.root or path.startswith(group.root.removesuffix("/") + "/")


@pytest.mark.parametrize("name", RIGHTS)
def test_one_right_for_all_that_begins_alike(name):
    assert {group.right for group in ENDPOINT_GROUPS if group.segments[0] == name} == {RIGHTS[name]}


def test_there_are_no_other_rights():
    assert {group.segments[0] for group in ENDPOINT_GROUPS} == RIGHTS.keys()


def test_klets_own_paths_are_on_the_socket_alone():
    own = [(group.listeners_of(endpoint), path) for group, endpoint, path in ENDPOINTS if "klet" in path]
    assert {listeners for listeners, _ in own} == {frozenset({ListenerKind.SOCKET})}
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
    words = {group.label for group in ENDPOINT_GROUPS} | {endpoint.label for _, endpoint, _ in ENDPOINTS} - {""}
    assert all(re.fullmatch(r"[a-zA-Z]+(/[a-z]+)?", word) for word in words)
    hostile = [f"/{name}/x{number}" for name in RIGHTS for number in range(50)]
    assert {label_path(path).path for path in hostile} <= words


class Closed:
    """Refuses every client."""

    async def check(self, request):  # noqa: ARG002 - the signature of RequestAuth
        return AuthRefusal(401, "Unauthorized")


@pytest.mark.parametrize("kind", ListenerKind)
def test_only_the_api_asks_who_it_is_and_it_always_does(kind):
    with pytest.raises(ValueError, match="against the table"):
        build_application((), kind=kind, auth=None if kind is ListenerKind.API else Closed())


def test_the_table_is_the_only_way_to_a_route():
    """So nothing is served that the tests of the table do not ask for: who is refused, and where it is there."""
    adds = re.compile(r"\.(add_route|add_get|add_post|add_view|add_static|add_routes|add_subapp)\(|RouteTableDef")
    serves = re.compile(r"web\.Application\(|web\.Server\(")
    found = {
        str(file.relative_to(SOURCE)): (bool(adds.search(text)), bool(serves.search(text)))
        for file in SOURCE.rglob("*.py")
        if (text := file.read_text())
    }
    others = {"embedded", "testing", "simulation"}
    own = {name: found[name] for name in found if name.split("/")[0] not in others and any(found[name])}
    assert own == {"server/application.py": (True, True)}
