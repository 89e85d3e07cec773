"""Whether a regular expression is well-formed, in one pass over its text. Pure.

It is for journalctl's `--grep`, whose library has the last word. Compiling it here, with another library, would cost
what the client likes; this finds the mistakes that people make, in upstream's words.
"""

import re
from typing import Final

from msgspec import Struct

MOST_REPEATS: Final = 1000
DEEPEST: Final = 250
_REPEAT: Final = re.compile(r"\{([0-9]{1,10})(?:(,)([0-9]{0,10}))?\}", re.ASCII)


def find_pattern_problem(pattern: str) -> str:
    """Return what is wrong with a Perl-compatible expression; empty if nothing is."""
    if "\0" in pattern:
        return "invalid character: `\\x00`"
    scan = _PatternScan(pattern)
    while scan.at < len(pattern):
        if problem := scan.take_next():
            return problem
    return f"missing closing ): `{pattern}`" if scan.groups else ""


class _PatternScan(Struct):
    """How far a pattern has been read."""

    pattern: str
    at: int = 0
    groups: int = 0
    """Groups that are open."""
    can_repeat: bool = False
    was_repeated: bool = False

    def take_next(self) -> str:
        """Read one element; return what is wrong with it."""
        was_repeated, self.was_repeated = self.was_repeated, False
        match self.pattern[self.at]:
            case "\\":
                self._go(2)
                return "trailing backslash at end of expression: ``" if self.at > len(self.pattern) else ""
            case "[":
                return self._take_class()
            case "(" | ")" as parenthesis:
                return self._take_parenthesis(parenthesis)
            case "*" | "+" | "?" | "{":
                return self._take_repeat(was_repeated=was_repeated)
            case char:
                self._go(1, can_repeat=char != "|")
                return ""

    def _go(self, length: int, *, can_repeat: bool = True) -> None:
        self.at += length
        self.can_repeat = can_repeat

    def _take_class(self) -> str:
        end = _end_of_class(self.pattern, self.at)
        if end < 0:
            return f"missing closing ]: `{self.pattern[self.at :]}`"
        self._go(end - self.at)
        return ""

    def _take_parenthesis(self, char: str) -> str:
        self.groups += 1 if char == "(" else -1
        if self.groups < 0:
            return f"unexpected ): `{self.pattern}`"
        if self.groups > DEEPEST:
            return f"expression nests too deeply: `{self.pattern[: self.at]}`"
        self._go(2 if self.pattern.startswith("(?", self.at) else 1, can_repeat=char == ")")
        return ""

    def _take_repeat(self, *, was_repeated: bool) -> str:
        length = _length_of_repeat(self.pattern, self.at)
        if length == 0:  # a brace that is a character like any other
            self._go(1)
            return ""
        shown = self.pattern[self.at : self.at + abs(length)]
        if length < 0:
            return f"invalid repeat count: `{shown}`"
        # Behind another one `?` is its lazy form and `+` its possessive one.
        if not self.can_repeat and not (was_repeated and shown in {"?", "+"}):
            return f"{'invalid nested' if was_repeated else 'missing argument to'} repetition operator: `{shown}`"
        self.was_repeated = self.can_repeat
        self._go(length, can_repeat=False)
        return ""


def _length_of_repeat(pattern: str, at: int) -> int:
    """Return the length of a repetition operator; 0 if there is none, negative if its counts are wrong."""
    if pattern[at] != "{":
        return 1
    found = _REPEAT.match(pattern, at)
    if found is None:
        return 0
    length = found.end() - at
    least, comma, most = int(found[1]), found[2], found[3]
    upper = int(most) if most else least
    return -length if max(least, upper) > MOST_REPEATS or (comma and upper < least) else length


def _end_of_class(pattern: str, at: int) -> int:
    """Return the index behind a character class; -1 without an end. A `]` that comes first is a character of it."""
    at += 2 if pattern.startswith("[^", at) else 1
    is_first = True
    while at < len(pattern):
        if pattern[at] == "]" and not is_first:
            return at + 1
        named = pattern.startswith("[:", at)
        end = pattern.find(":]", at + 2, at + 16) if named else -1
        at = end + 2 if end >= 0 else at + (2 if pattern[at] == "\\" else 1)
        is_first = False
    return -1
