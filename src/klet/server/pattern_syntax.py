"""Whether a regular expression is well-formed, in one pass over its text. Pure.

It is for journalctl's `--grep`, whose library has the last word. Compiling it here, with another library, would cost
what the client likes; this finds the mistakes that people make, in upstream's words.
"""

import re
from typing import Final

MOST_REPEATS: Final = 1000
DEEPEST: Final = 250
_REPEAT: Final = re.compile(r"\{([0-9]{1,10})(?:(,)([0-9]{0,10}))?\}", re.ASCII)


def find_pattern_problem(pattern: str) -> str:
    """Return what is wrong with a Perl-compatible expression; empty if nothing is."""
    if "\0" in pattern:
        return "invalid character: `\\x00`"
    groups, at, can_repeat, was_repeated = 0, 0, False, False
    while at < len(pattern):
        char, is_repeat = pattern[at], False
        if char == "\\":
            if at + 1 == len(pattern):
                return "trailing backslash at end of expression: ``"
            at, can_repeat = at + 2, True
        elif char == "[":
            end = _end_of_class(pattern, at)
            if end < 0:
                return f"missing closing ]: `{pattern[at:]}`"
            at, can_repeat = end, True
        elif char == "(":
            groups += 1
            if groups > DEEPEST:
                return f"expression nests too deeply: `{pattern[:at]}`"
            at, can_repeat = at + (2 if pattern.startswith("(?", at) else 1), False
        elif char == ")":
            groups -= 1
            if groups < 0:
                return f"unexpected ): `{pattern}`"
            at, can_repeat = at + 1, True
        elif (length := _repeat_at(pattern, at)) != 0:
            if length < 0:
                return f"invalid repeat count: `{pattern[at : at - length]}`"
            shown = pattern[at : at + length]
            # Behind another one `?` is its lazy form and `+` its possessive one.
            if not can_repeat and not (was_repeated and shown in "?+"):
                word = (
                    "invalid nested repetition operator" if was_repeated else "missing argument to repetition operator"
                )
                return f"{word}: `{shown}`"
            is_repeat = can_repeat
            at, can_repeat = at + length, False
        else:
            at, can_repeat = at + 1, char != "|"
        was_repeated = is_repeat
    return f"missing closing ): `{pattern}`" if groups else ""


def _repeat_at(pattern: str, at: int) -> int:
    """Return the length of a repetition operator; 0 if there is none, negative if its counts are wrong."""
    if pattern[at] in "*+?":
        return 1
    found = _REPEAT.match(pattern, at) if pattern[at] == "{" else None
    if found is None:
        return 0
    length = found.end() - at
    least, comma, most = int(found[1]), found[2], found[3]
    upper = int(most) if most else least
    return -length if max(least, upper) > MOST_REPEATS or (comma and upper < least) else length


def _end_of_class(pattern: str, at: int) -> int:
    """Return the index behind a character class; -1 if it has no end. A `]` that comes first is one of its characters."""
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
