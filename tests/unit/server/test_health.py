"""The text of the health checks."""

import pytest

from klet.server.routes.health import render_checks

GOOD = {"ping": None, "log": None}
BAD = {"ping": None, "syncloop": "too slow"}


@pytest.mark.parametrize(
    ("checks", "excluded", "lines", "is_well"),
    [
        pytest.param(GOOD, set(), ["[+]ping ok", "[+]log ok", "healthz check passed"], True, id="all well"),
        pytest.param(
            BAD,
            set(),
            ["[+]ping ok", "[-]syncloop failed: reason withheld", "healthz check failed"],
            False,
            id="one fails, and its reason is not reported",
        ),
        pytest.param(
            BAD,
            {"syncloop"},
            ["[+]ping ok", "[+]syncloop excluded: ok", "healthz check passed"],
            True,
            id="a failing check can be left out",
        ),
        pytest.param(
            GOOD,
            {"y", "x"},
            [
                "[+]ping ok",
                "[+]log ok",
                'warn: some health checks cannot be excluded: no matches for "x", "y"',
                "healthz check passed",
            ],
            True,
            id="what is not there cannot be left out",
        ),
    ],
)
def test_checks(checks, excluded, lines, is_well):
    assert render_checks(checks, excluded) == ("\n".join(lines) + "\n", is_well)
