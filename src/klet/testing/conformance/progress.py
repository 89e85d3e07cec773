"""How far a run is, from the lines that ginkgo prints while it runs in parallel."""

import re
from datetime import timedelta
from typing import Final

_TOTAL: Final = re.compile(r"^Will run (\d+) of \d+ specs$")
_PASSED: Final = re.compile(r"^•(?: \[[\d.]+ seconds\])?$")
_FAILED: Final = re.compile(r"^• \[[A-Z!]+\] \[[\d.]+ seconds\]$")
_MARK: Final = re.compile(r"\s*\[(?:It|BeforeEach|AfterEach|DeferCleanup \([^)]*\))\](?= |$)")
_LABELS: Final = re.compile(r" \[[^\[\]]*, [^\[\]]*\]$")
"""What ginkgo adds to the name of a spec that has failed."""


class SpecProgress:
    """Counts specs as they end."""

    def __init__(self) -> None:
        self.total = 0
        self.passed = 0
        self.failed: list[str] = []
        self._expects_name = False

    def read(self, line: str) -> str:
        """Take one line of ginkgo's output; return the name of the spec that it says has failed, or nothing."""
        text = line.rstrip()
        if self._expects_name and text:
            self._expects_name = False
            self.failed.append(_MARK.sub("", _LABELS.sub("", text)).strip())
            return self.failed[-1]
        if found := _TOTAL.match(text):
            self.total = int(found[1])
        elif _FAILED.match(text):
            self._expects_name = True
        elif _PASSED.match(text):
            self.passed += 1
        return ""

    @property
    def done(self) -> int:
        return self.passed + len(self.failed)

    def describe(self, elapsed: timedelta) -> str:
        minutes, seconds = divmod(int(elapsed.total_seconds()), 60)
        return f"{self.done} of {self.total or '?'} done, {len(self.failed)} failed, {minutes}:{seconds:02} min"
