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
    "/exec/a/b/c": ("proxy",),
    "/attach/a/b/c": ("proxy",),
    "/portForward/a/b": ("proxy",),
    "/run/a/b/c": ("proxy",),
    "/containerLogs/a/b/c": ("proxy",),
    "/debug/pprof/heap": ("proxy",),
    "/podsx": ("proxy",),
    "/statsx": ("proxy",),
    "/": ("proxy",),
}


@pytest.mark.parametrize(("path", "subresources"), [*FINE.items(), *ALWAYS.items()])
def test_subresources(path, subresources):
    assert read_attributes("GET", path, is_fine_grained=True) == Attributes("get", subresources)


@pytest.mark.parametrize("path", FINE)
def test_without_the_gate_these_need_proxy(path):
    assert read_attributes("GET", path, is_fine_grained=False) == Attributes("get", ("proxy",))


@pytest.mark.parametrize("path", ALWAYS)
def test_without_the_gate_the_others_stay(path):
    assert read_attributes("GET", path, is_fine_grained=False).subresources == ALWAYS[path]


@pytest.mark.parametrize(
    ("method", "verb"),
    [
        ("POST", "create"),
        ("GET", "get"),
        ("PUT", "update"),
        ("PATCH", "patch"),
        ("DELETE", "delete"),
        ("HEAD", ""),
        ("OPTIONS", ""),
        ("get", ""),
    ],
)
def test_verbs(method, verb):
    assert read_attributes(method, "/exec/a/b/c", is_fine_grained=True) == Attributes(verb, ("proxy",))
