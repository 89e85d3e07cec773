"""Requests as the authorizer sees them."""

import pytest

from klet.server.auth.attributes import Attributes, read_attributes

FINE = {
    "/pods": ("pods", "proxy"),
    "/pods/": ("pods", "proxy"),
    "/runningpods/": ("pods", "proxy"),
    "/healthz": ("healthz", "proxy"),
    "/healthz/ping": ("healthz", "proxy"),
    "/configz": ("configz", "proxy"),
}
ALWAYS = {
    "/stats": ("stats",),
    "/stats/summary": ("stats",),
    "/metrics": ("metrics",),
    "/metrics/cadvisor": ("metrics",),
    "/logs/": ("log",),
    "/logs/messages": ("log",),
    "/checkpoint/a/b/c": ("checkpoint",),
    "/statusz": ("statusz",),
    "/flagz": ("configz",),
    "/containerLogs/a/b/c": ("proxy",),
    "/debug/pprof/heap": ("proxy",),
    "/podsx": ("proxy",),
    "/statsx": ("proxy",),
    "/": ("proxy",),
}


@pytest.mark.parametrize(("path", "subresources"), [*FINE.items(), *ALWAYS.items()])
def test_subresources(path, subresources):
    assert read_attributes("GET", path, is_fine_grained=True, streams_by_method=False) == Attributes(
        "get", subresources
    )


@pytest.mark.parametrize("path", FINE)
def test_without_the_gate_these_need_proxy(path):
    assert read_attributes("GET", path, is_fine_grained=False, streams_by_method=False) == Attributes("get", ("proxy",))


@pytest.mark.parametrize("path", ALWAYS)
def test_without_the_gate_the_others_stay(path):
    assert read_attributes("GET", path, is_fine_grained=False, streams_by_method=False).subresources == ALWAYS[path]


METHODS = [
    ("POST", "create"),
    ("GET", "get"),
    ("PUT", "update"),
    ("PATCH", "patch"),
    ("DELETE", "delete"),
    ("HEAD", ""),
    ("OPTIONS", ""),
    ("get", ""),
]
REACHING_IN = ["/exec/a/b/c", "/attach/a/b/c", "/portForward/a/b", "/run/a/b/c", "/exec"]


@pytest.mark.parametrize(("method", "verb"), METHODS)
def test_verbs(method, verb):
    found = read_attributes(method, "/containerLogs/a/b/c", is_fine_grained=True, streams_by_method=False)
    assert found == Attributes(verb, ("proxy",))


@pytest.mark.parametrize("path", REACHING_IN)
@pytest.mark.parametrize(("method", "verb"), METHODS)
def test_to_reach_into_a_pod_is_to_create_whatever_the_method(path, method, verb):
    for is_fine_grained in (True, False):
        found = read_attributes(method, path, is_fine_grained=is_fine_grained, streams_by_method=False)
        assert found == Attributes("create", ("proxy",))
    assert read_attributes(method, path, is_fine_grained=True, streams_by_method=True) == Attributes(verb, ("proxy",))
