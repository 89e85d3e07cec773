"""Where the test command speaks: lines on any output, and a line that changes in place on a terminal."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, TextIO

from klet.aio.clock import Clock

PROGRESS_EVERY: Final = timedelta(seconds=20)
_CLEAR: Final = "\r\x1b[K"


class Console:
    """Writes lines with the time of day before them."""

    def __init__(self, *, output: TextIO, is_terminal: bool, is_shared: bool, width: int, clock: Clock) -> None:
        self._output = output
        # Another process writes there too, and may be in the middle of a line.
        self._start = "\n" if is_shared else ""
        self._is_terminal = is_terminal
        self._width = width
        self._clock = clock
        self._states: dict[str, str] = {}
        self._said: dict[str, float] = {}

    def say(self, text: str) -> None:
        """Write a line with the time."""
        self.write(f"{self._clock.now().astimezone():%H:%M:%S} {text}\n")

    def write(self, text: str) -> None:
        self._output.write(f"{_CLEAR}{text}" if self._is_terminal else text)
        self._output.flush()

    def begin(self, part: str) -> None:
        """Note that a part has begun; its first progress is due in a while."""
        self._said[part] = self._clock.monotonic()

    def progress(self, part: str, text: str) -> None:
        """Show how far a part is: at once on a terminal, now and then elsewhere."""
        self._states[part] = text
        if self._is_terminal:
            self._output.write(_CLEAR + shorten(self._states, self._width))
            self._output.flush()
        elif self._clock.monotonic() - self._said[part] >= PROGRESS_EVERY.total_seconds():
            self._said[part] = self._clock.monotonic()
            self._output.write(self._start)
            self.say(f"{part}: {text}")

    def end(self, part: str) -> None:
        self._states.pop(part, None)


def shorten(states: Mapping[str, str], width: int) -> str:
    """Put all parts on one line of a terminal."""
    each = max(20, (width - 1) // max(1, len(states)) - 3)
    return " | ".join(f"{part}: {text}"[:each] for part, text in states.items())[: max(1, width - 1)]
