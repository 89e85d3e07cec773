"""Files of environment variables, as `fileKeyRef` reads them: a small part of the shell's syntax.

NAME='text, taken as it stands
over as many lines as it likes'   # a comment
"""

from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct, field

from klet.errors import KletError

LONGEST_LINE = 64 << 10
"""Bytes of one line, its end included."""
_BLANKS = " \t\r\v\f\n"


class EnvFileError(KletError):
    """A line that breaks the syntax; names the line and the rule, never the value."""


class EnvFile(Struct, frozen=True):
    """The variables that were asked for, as far as they stand before the first wrong line."""

    values: Mapping[str, str] = field(default_factory=dict)
    error: EnvFileError | None = None

    def find(self, name: str) -> str | None:
        """Return the value of a variable. A wrong line before it raises; what comes after it does not count."""
        value = self.values.get(name)
        if value is None and self.error is not None:
            raise self.error
        return value


def read_env_file(content: bytes, names: Collection[str]) -> EnvFile:
    """Look for all names at once: a file may be long, and be referred to by many variables."""
    values: dict[str, str] = {}
    try:
        for name, value in _variables(content):
            if name in names:
                values.setdefault(name, value)
                if len(values) == len(names):
                    break
    except EnvFileError as error:
        return EnvFile(values, error)
    return EnvFile(values)


def find_variable(content: bytes, name: str) -> str | None:
    """Return the value of a variable. What comes after it is not even looked at; a wrong line before it raises."""
    return read_env_file(content, frozenset({name})).find(name)


def _variables(content: bytes) -> Iterator[tuple[str, str]]:
    lines = _Lines(content)
    for line in lines:
        text = line.lstrip(_BLANKS)
        if not text or text.startswith("#"):
            continue
        found, equals, rest = text.partition("=")
        if not equals:
            raise lines.error("a variable is written NAME='value'")
        if not found or found[-1] in _BLANKS:
            raise lines.error("the name must stand directly before the equals sign")
        value = "" if rest and rest[0] in _BLANKS else _quoted_value(rest, lines)
        yield found, value


class _Lines:
    """The lines of a file without their ends, and the number of the one that was read last."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.number = 0
        self._start = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self._start >= len(self.content):
            raise StopIteration
        self.number += 1
        end = self.content.find(b"\n", self._start)
        end = len(self.content) if end < 0 else end
        if end - self._start >= LONGEST_LINE:
            raise self.error(f"longer than {LONGEST_LINE} bytes")
        line = self.content[self._start : end].removesuffix(b"\r")
        self._start = end + 1
        return line.decode(errors="surrogateescape")

    def error(self, rule: str) -> EnvFileError:
        return EnvFileError(f"line {self.number}: {rule}")


def _quoted_value(rest: str, lines: _Lines) -> str:
    if not rest.startswith("'"):
        raise lines.error("a value must stand in single quotes")
    first, closing, after = rest[1:].partition("'")
    value = [first]
    while not closing:
        line = next(lines, None)
        if line is None:
            raise lines.error("the quote is not closed")
        more, closing, after = line.partition("'")
        value.append(more)
    after = after.lstrip(_BLANKS)
    if after and not after.startswith("#"):
        raise lines.error("only a comment may follow the closing quote")
    return "\n".join(value)
