import io
import os
import sys

import pytest
from rich.console import Console

from klet.aio.clock import SystemClock
from klet.cli.progress import PlainProgress, TerminalProgress, choose_progress


class StillClock:
    def monotonic(self):
        return 7.0


def test_plain_lines_show_what_was_done_and_how_long_it_took(capsys):
    progress = PlainProgress(clock=StillClock())
    with progress.step("Images") as step:
        step.note("there already")
    with progress.step("Daemons"):
        pass
    with pytest.raises(ValueError, match="broken"), progress.step("Agent"):
        raise ValueError("broken")
    with pytest.raises(KeyboardInterrupt), progress.step("Agent"):
        raise KeyboardInterrupt
    progress.warn("w")
    progress.error("e")
    progress.waiting("not shown")
    assert capsys.readouterr().err.splitlines() == [
        "Images: there already (0ms)",
        "Daemons: done (0ms)",
        "Agent: failed (0ms)",
        "Agent: interrupted (0ms)",
        "warning: w",
        "error: e",
    ]


def test_a_reader_that_went_away_stops_nothing(monkeypatch):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stderr", pipe)
        PlainProgress(clock=StillClock()).show("into the void")
        # What is left in the buffer would be complained about once more when the file is closed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)


def test_a_terminal_gets_marks_and_text_is_not_taken_for_markup():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=200, color_system=None)
    progress = TerminalProgress(console=console, clock=StillClock())
    with progress.step("Images [1]") as step:
        step.note("[red]")
    progress.show("[bold]as it is")
    progress.waiting("a")
    progress.waiting("b")
    progress.waiting("")
    text = screen.getvalue()
    assert "✓ Images [1]: [red] 0ms" in text
    assert "[bold]as it is" in text


def test_a_pipe_gets_plain_lines():
    assert isinstance(choose_progress(clock=SystemClock()), PlainProgress)
