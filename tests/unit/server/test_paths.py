"""Which paths there are."""

import pytest

from klet.server.paths import KnownPath, RedirectedPath, UnknownPath, match_health_path, match_path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        *[
            (path, KnownPath())
            for path in (
                *("/healthz", "/healthz/ping", "/healthz/log", "/healthz/syncloop", "/pods", "/pods/", "/pods/x"),
                *("/exec", "/exec/", "/exec/a/b/c", "/attach/a", "/portForward/a/b", "/run/a/b/c", "/containerLogs/a"),
                *("/metrics", "/metrics/cadvisor", "/stats/summary", "/stats/", "/logs/", "/logs/a", "/configz"),
                *("/runningpods/", "/checkpoint/a/b/c", "/debug/pprof/heap", "/debug/flags/v", "/klet/v1/pods"),
            )
        ],
        *[
            (path, UnknownPath())
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
        *[
            (path, RedirectedPath(path + "/"))
            for path in ("/stats", "/logs", "/runningpods", "/checkpoint", "/debug/pprof")
        ],
    ],
)
def test_paths(path, expected):
    assert match_path(path, has_debugging=True) == expected


def test_without_debugging_some_paths_are_gone():
    for path in ("/configz", "/checkpoint", "/checkpoint/a/b/c"):
        assert match_path(path, has_debugging=False) == UnknownPath()
    assert match_path("/exec/a/b/c", has_debugging=False) == KnownPath()


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/healthz", KnownPath()), ("/healthz/ping", KnownPath()), ("/pods", UnknownPath()), ("/stats", UnknownPath())],
)
def test_the_health_listener_has_no_other_path(path, expected):
    assert match_health_path(path) == expected
