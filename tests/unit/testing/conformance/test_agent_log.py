from datetime import datetime, timedelta

import pytest

from klet.testing.conformance.agent_log import read_time, select_lines

START = datetime(2026, 11, 16, 12, 0, 0).astimezone()
END = START + timedelta(seconds=10)
LOG = """\
I1116 11:59:50.000000       1 a.py:1] "before"
I1116 12:00:01.000000       1 a.py:1] "first" pod="other-7/x"
W1116 12:00:02.000000       1 a.py:1] "mine" pod="pods-12/x"
Traceback of mine
E1116 12:00:09.000000       1 a.py:1] "third"
I1116 12:00:20.000000       1 a.py:1] "after"
trace of after
""".splitlines(keepends=True)


def select(**options):
    return [line.partition("] ")[2] or line for line in select_lines(LOG, started=START, ended=END, **options)]


def test_the_lines_of_a_window_with_those_that_have_no_date():
    assert select() == ['"first" pod="other-7/x"', '"mine" pod="pods-12/x"', "Traceback of mine", '"third"']


def test_lines_that_name_the_namespace_are_enough():
    assert select(namespace="pods-12") == ['"mine" pod="pods-12/x"']


def test_a_namespace_that_nobody_names_changes_nothing():
    assert len(select(namespace="none-1")) == 4


def test_the_last_ones_count():
    assert select(limit=1) == ['"third"']


@pytest.mark.parametrize("line", ["", "no date", "I9999 12:00:00.000000 1 x", "I1116 12:00:00"])
def test_a_line_without_a_date(line):
    assert read_time(line, near=START) is None
