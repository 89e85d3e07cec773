import io
from datetime import timedelta

import pytest

from klet.testing.clock import ManualClock
from klet.testing.runs.console import Console, shorten


class Screen:
    """A console and what it wrote."""

    def __init__(self, *, is_terminal=False, is_shared=False):
        self.clock = ManualClock()
        self.output = io.StringIO()
        self.console = Console(
            output=self.output, is_terminal=is_terminal, is_shared=is_shared, width=40, clock=self.clock
        )

    def lines(self):
        """Without the time of day, which depends on the zone."""
        return [line[9:] for line in self.output.getvalue().splitlines()]


def test_progress_is_shown_now_and_then():
    screen = Screen()
    screen.console.begin("a")
    for seconds in range(50):
        screen.console.progress("a", f"{seconds} done")
        screen.clock.advance(timedelta(seconds=1))
    assert screen.lines() == ["a: 20 done", "a: 40 done"]


def test_each_part_has_its_own_time():
    screen = Screen()
    screen.console.begin("a")
    screen.clock.advance(timedelta(seconds=15))
    screen.console.begin("b")
    screen.clock.advance(timedelta(seconds=6))
    screen.console.progress("a", "1 done")
    screen.console.progress("b", "2 done")
    assert screen.lines() == ["a: 1 done"]


def test_on_shared_output_progress_begins_a_line():
    screen = Screen(is_shared=True)
    screen.console.begin("a")
    screen.clock.advance(timedelta(seconds=20))
    screen.console.progress("a", "1 done")
    assert screen.output.getvalue().startswith("\n")


def test_on_a_terminal_one_line_changes_in_place():
    screen = Screen(is_terminal=True)
    screen.console.begin("a")
    screen.console.progress("a", "1 done")
    screen.console.progress("b", "2 done")
    screen.console.write("FAILED c\n")
    assert screen.output.getvalue() == "\r\x1b[Ka: 1 done\r\x1b[Ka: 1 done | b: 2 done\r\x1b[KFAILED c\n"


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        pytest.param({}, "", id="nothing"),
        pytest.param({"a": "x" * 50}, "a: " + "x" * 33, id="one part"),
        pytest.param({"a": "x" * 50, "b": "y"}, "a: " + "x" * 17 + " | b: y", id="two parts"),
    ],
)
def test_a_line_fits_on_the_terminal(states, expected):
    assert shorten(states, 40) == expected
