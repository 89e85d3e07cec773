from datetime import timedelta

import pytest

from klet.cli.pod_commands import log_query, print_logs
from klet.cli.pod_table import column_widths, render_lines, render_table


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, {}, id="nothing asked"),
        pytest.param({"follow": True, "timestamps": True}, {"follow": "true", "timestamps": "true"}, id="switches"),
        pytest.param({"tail": 0}, {"tailLines": "0"}, id="no line is a wish too"),
        pytest.param({"since": timedelta(seconds=1.5)}, {"sinceSeconds": "2"}, id="seconds are rounded up"),
        pytest.param({"since": timedelta(milliseconds=1)}, {"sinceSeconds": "1"}, id="at least one second"),
        pytest.param({"previous": True}, {"previous": "true"}, id="the previous run"),
    ],
)
def test_log_query(options, expected):
    given = {"follow": False, "tail": -1, "since": None, "timestamps": False, "previous": False, **options}
    assert log_query(**given) == expected


def test_a_table_is_aligned_and_has_no_trailing_blanks():
    assert render_table(["A", "LONG"], [["value", "x"], ["y", "z"]]) == "A       LONG\nvalue   x\ny       z\n"


def test_columns_that_were_shown_do_not_move_to_the_left():
    widths = column_widths([["A", "B"], ["long name", "x"]])
    later = column_widths([["A", "B"], ["y", "wider"]], at_least=widths)
    assert later == [9, 5]
    assert render_lines([["y", "wider"]], later) == "y           wider\n"


class Logs:
    """An agent with pods that have written one line."""

    def __init__(self, *pods):
        self._pods = pods

    def pods(self):
        return self._pods

    def logs(self, namespace, pod, container, query):  # noqa: ARG002 - the client takes it
        yield f"{namespace}/{pod}/{container}\n".encode()


@pytest.mark.parametrize(
    ("names", "container", "output", "note"),
    [
        pytest.param("a", None, "default/web-node/a\n", "", id="the only one needs no word"),
        pytest.param("ab", None, "default/web-node/a\n", "container a of: a, b\n", id="the first of two is named"),
        pytest.param("ab", "b", "default/web-node/b\n", "", id="the one that was asked for"),
    ],
)
def test_logs_say_which_container_was_taken(build_pod, capfdbinary, names, container, output, note):
    pod = build_pod(containers=[build_pod.status(name, {}) for name in names])
    print_logs(Logs(pod), "web", namespace=None, container=container, query={})
    reported = capfdbinary.readouterr()
    assert (reported.out.decode(), reported.err.decode()) == (output, note)
