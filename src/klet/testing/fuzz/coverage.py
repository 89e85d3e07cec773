"""Which lines of klet an input is the first to reach.

`sys.settrace` is dear, so a function is traced only until each of its lines has been seen; after that it costs no more
than the look at its name.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import klet

_HOME: Final = str(Path(klet.__file__).parent) + "/"
_TESTING: Final = f"{_HOME}testing/"


class LineCoverage:
    """The lines seen so far, of the code under test alone."""

    def __init__(self, homes: tuple[str, ...] = (_HOME,), besides: tuple[str, ...] = (_TESTING,)) -> None:
        self._homes = homes
        self._besides = besides
        # By id: to hash a code object costs as much as all of its constants.
        self._unseen: dict[int, set[int]] = {}
        self._codes: list[CodeType] = []
        self._seen = 0
        self._is_fresh = False

    @property
    def seen(self) -> int:
        """How many lines."""
        return self._seen

    def take_fresh(self) -> bool:
        """Return whether a line was seen for the first time since the last question."""
        fresh, self._is_fresh = self._is_fresh, False
        return fresh

    @contextmanager
    def watching(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> Any:
        unseen = self._unseen.get(id(frame.f_code))
        if unseen is None:
            unseen = self._learn(frame.f_code)
        return self._follow if unseen else None

    def _follow(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            unseen = self._unseen[id(frame.f_code)]
            if frame.f_lineno in unseen:
                unseen.discard(frame.f_lineno)
                self._seen += 1
                self._is_fresh = True
        return self._follow

    def _learn(self, code: CodeType) -> set[int]:
        path = code.co_filename
        is_ours = path.startswith(self._homes) and not path.startswith(self._besides)
        # The line of the definition is no line that runs.
        lines = {line for _, _, line in code.co_lines() if line is not None and line != code.co_firstlineno}
        self._codes.append(code)
        self._unseen[id(code)] = found = lines if is_ours else set()
        return found
