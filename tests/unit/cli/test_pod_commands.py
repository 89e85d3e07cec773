from datetime import timedelta

import pytest

from klet.cli.pod_commands import log_query
from klet.cli.table import render_table


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, {}, id="nothing asked"),
        pytest.param({"follow": True, "timestamps": True}, {"follow": "true", "timestamps": "true"}, id="switches"),
        pytest.param({"tail": 0}, {"tailLines": "0"}, id="no line is a wish too"),
        pytest.param({"since": timedelta(seconds=1.5)}, {"sinceSeconds": "2"}, id="seconds are rounded up"),
        pytest.param({"since": timedelta(milliseconds=1)}, {"sinceSeconds": "1"}, id="at least one second"),
        pytest.param({"previous": True}, {"previous": "true"}, id="the life before"),
    ],
)
def test_log_query(options, expected):
    given = {"follow": False, "tail": -1, "since": None, "timestamps": False, "previous": False, **options}
    assert log_query(**given) == expected


def test_a_table_is_aligned_and_has_no_trailing_blanks():
    assert render_table(["A", "LONG"], [["value", "x"], ["y", "z"]]) == "A       LONG\nvalue   x\ny       z\n"
