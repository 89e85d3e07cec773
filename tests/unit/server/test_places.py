"""Which paths there are."""

import pytest

from klet.server.places import Inside, Moved, Outside, find_health, find_place


@pytest.mark.parametrize(
    ("path", "place"),
    [
        *[
            (path, Inside())
            for path in (
                *("/healthz", "/healthz/ping", "/healthz/log", "/healthz/syncloop", "/pods", "/pods/", "/pods/x"),
                *("/exec", "/exec/", "/exec/a/b/c", "/attach/a", "/portForward/a/b", "/run/a/b/c", "/containerLogs/a"),
                *("/metrics", "/metrics/cadvisor", "/stats/summary", "/stats/", "/logs/", "/logs/a", "/configz"),
                *("/runningpods/", "/checkpoint/a/b/c", "/debug/pprof/heap", "/debug/flags/v", "/klet/v1/pods"),
            )
        ],
        *[
            (path, Outside())
            for path in (
                *(
                    "/",
                    "",
                    "*",
                    "/livez",
                    "/readyz",
                    "/spec/",
                    "/version",
                    "/healthz/unknown",
                    "/healthz/",
                    "/metrics/",
                ),
                *("/configz/", "/podsx", "/execute", "/debug", "/debug/", "/flagz", "/statusz"),
            )
        ],
        *[(path, Moved(path + "/")) for path in ("/stats", "/logs", "/runningpods", "/checkpoint", "/debug/pprof")],
    ],
)
def test_places(path, place):
    assert find_place(path, has_debugging=True) == place


def test_without_debugging_some_paths_are_gone():
    for path in ("/configz", "/checkpoint", "/checkpoint/a/b/c"):
        assert find_place(path, has_debugging=False) == Outside()
    assert find_place("/exec/a/b/c", has_debugging=False) == Inside()


@pytest.mark.parametrize(
    ("path", "place"),
    [("/healthz", Inside()), ("/healthz/ping", Inside()), ("/pods", Outside()), ("/stats", Outside())],
)
def test_the_listener_of_health_has_no_more(path, place):
    assert find_health(path) == place
