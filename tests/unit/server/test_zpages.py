from datetime import UTC, datetime

import pytest

from klet.server.routes.zpages import negotiate, render_flagz, render_statusz

WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is "
    "for debugging purposes only.\n"
)


def test_flags_are_sorted():
    text = render_flagz({"v": "2", "root-dir": "/r"}, delimiter="=")
    assert text == f"\nkubelet flagz\n{WARNING}root-dir=/r\nv=2\n"


def test_status():
    fields = {
        "uptimeSeconds": 3723,
        "goVersion": "python3.11",
        "binaryVersion": "1.35.8",
        "emulationVersion": "1.35",
        "paths": ("/configz", "/healthz"),
    }
    assert render_statusz(fields, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), delimiter=":") == (
        f"\nkubelet statusz\n{WARNING}\n"
        "Started: Fri Jan  2 03:04:05 UTC 2026\nUp: 1 hr 02 min 03 sec\nGo version: python3.11\n"
        "Binary version: 1.35.8\nEmulation version: 1.35\nPaths: /configz /healthz\n"
    )


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", "text/plain"),
        ("*/*", "text/plain"),
        ("text/plain;q=0.9", "text/plain"),
        ("application/json;as=Flagz;v=v1alpha1;g=config.k8s.io", "application/json"),
        ("application/json;as=Flagz;v=v1;g=config.k8s.io", ""),
        ("application/json", ""),
        ("image/png", ""),
        (";;=,;as", ""),
    ],
)
def test_negotiate(accept, chosen):
    assert negotiate(accept, "Flagz") == chosen
