"""Shows what happens: a spinner and ticks on a terminal, plain lines elsewhere. Durations always."""

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from klet.aio.clock import Clock
from klet.cli.durations import exact_duration
from klet.model.foreign_text import as_terminal_text


class ProgressStep:
    """One thing being done; a note describes its result."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.result = ""

    def note(self, text: str) -> None:
        self.result = text


class CommandProgress(Protocol):
    """Shows the progress of a command."""

    def step(self, title: str) -> contextlib.AbstractContextManager[ProgressStep]: ...

    def show(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def error(self, text: str) -> None: ...

    def waiting(self, text: str) -> None:
        """Show what the command waits for, on a terminal only; an empty text removes it."""
        ...

    def milestone(self, text: str) -> None:
        """Show how far something long is, but not on a terminal, where `waiting` shows it all the time."""
        ...


class PlainProgress:
    """Lines on standard error, one for each thing that is done."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[ProgressStep]:
        step = ProgressStep(title)
        began = self._clock.monotonic()
        try:
            yield step
        except BaseException as error:
            self.show(f"{title}: {_ending(error)} ({self._since(began)})")
            raise
        self.show(f"{title}: {step.result or 'done'} ({self._since(began)})")

    def show(self, text: str) -> None:
        # A reader that closed the pipe, as `| head` does, must not stop a node half way down.
        with contextlib.suppress(BrokenPipeError):
            print(as_terminal_text(text), file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        self.show(f"warning: {text}")

    def error(self, text: str) -> None:
        self.show(f"error: {text}")

    def waiting(self, text: str) -> None:
        """Show nothing: repeated lines are no help in a log."""

    def milestone(self, text: str) -> None:
        self.show(text)

    def _since(self, began: float) -> str:
        return exact_duration(timedelta(seconds=self._clock.monotonic() - began))


class TerminalProgress:
    """A spinner for what is going on, a tick for what is done."""

    def __init__(self, *, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._status: Status | None = None

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[ProgressStep]:
        step = ProgressStep(title)
        began = self._clock.monotonic()
        self.waiting(title)
        try:
            yield step
        except BaseException as error:
            self._line("[red]✗[/red]", title, _ending(error), began)
            raise
        finally:
            self.waiting("")
        self._line("[green]✓[/green]", title, step.result, began)

    def show(self, text: str) -> None:
        self._console.print(_plain(text), highlight=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        self._console.print(f"[yellow]warning:[/yellow] {_plain(text)}", highlight=False, soft_wrap=True)

    def error(self, text: str) -> None:
        self._console.print(f"[red]error:[/red] {_plain(text)}", highlight=False, soft_wrap=True)

    def waiting(self, text: str) -> None:
        if not text:
            if self._status is not None:
                self._status.stop()
                self._status = None
        elif self._status is None:
            self._status = self._console.status(_plain(text))
            self._status.start()
        else:
            self._status.update(_plain(text))

    def milestone(self, text: str) -> None:
        """Show nothing: it is in the line below."""

    def _line(self, mark: str, title: str, result: str, began: float) -> None:
        took = exact_duration(timedelta(seconds=self._clock.monotonic() - began))
        detail = f": {_plain(result)}" if result else ""
        self._console.print(f"{mark} {_plain(title)}{detail} [dim]{took}[/dim]", highlight=False, soft_wrap=True)


def _plain(text: str) -> str:
    """Escape rich's markup and the control characters of terminals."""
    return escape(as_terminal_text(text))


def _ending(error: BaseException) -> str:
    # Inside of an event loop a Ctrl-C arrives as a cancellation.
    return "interrupted" if isinstance(error, (KeyboardInterrupt, asyncio.CancelledError)) else "failed"


def choose_progress(*, clock: Clock) -> CommandProgress:
    """Return the display for a terminal, and lines for a pipe, a file and TERM=dumb."""
    console = Console(stderr=True)
    if console.is_terminal and not console.is_dumb_terminal:
        return TerminalProgress(console=console, clock=clock)
    return PlainProgress(clock=clock)
