"""YAML or JSON text to a plain document, resolving scalars as upstream's YAML library does.

Only a document knows what was left unset and what was written twice, so loading, defaulting and merging work on it. A
YAML text that is small to look at and harmful to build is refused first: building goes as deep as the text nests, in C,
where too much of it ends the process; and nine lines of aliases of aliases fill any memory.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

import yaml
from msgspec import Struct

from klet.config.errors import ConfigError, one_line

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = Mapping[str, Json]

_TRUE = ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")
_FALSE = ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")
_NULL = ("", "~", "null", "Null", "NULL")
_INT = re.compile(r"[-+]?(0b[01_]+|0o?[0-7_]*|0x[0-9a-fA-F_]+|[1-9][0-9_]*)$")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
_LONGEST_INTEGER = 70
"""Digits, in any base, that 64 bits can need."""
_EXPONENT_FREE = 1e21
"""Go prints integral floats below this without an exponent, so that they pass as integers."""
_SHOWN = 256
"""Characters of a key that a path shows."""
_MOST_DUPLICATES = 100
_PLAIN = "plain"
_CONVERTING = "error converting YAML to JSON: "
_RESOLVED_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float"))
DEEPEST: Final = 100
MOST_NODES: Final = 500_000
"""Each costs a hundred times the bytes that it was written in."""
MOST_ALIASED: Final = 100_000
"""How many nodes aliases may stand for, all in all."""


class Document(Struct, frozen=True):
    """One object as it was written."""

    fields: JsonObject
    duplicates: tuple[str, ...] = ()
    """Paths that were written more than once; the last writing counts."""


class BadLine(ConfigError):
    """What is wrong with one line of a YAML text."""

    def __init__(self, line: int, rule: str, *, column: int | None = None, step: str = "") -> None:
        place = f"line {line}" if column is None else f"line {line}, column {column}"
        super().__init__(f"{step}yaml: {place}: {rule}")
        self._line, self._rule, self._column, self._step = line, rule, column, step

    def after(self, lines: int) -> "BadLine":
        """Return the same of a text that this many lines come before."""
        return BadLine(self._line + lines, self._rule, column=self._column, step=self._step)


class _Loader(yaml.CSafeLoader):
    """Marks plain scalars instead of resolving them: PyYAML's idea of numbers and dates is not Kubernetes'."""

    # PyYAML keeps the resolvers on the class; a table of our own leaves the library's untouched.
    yaml_implicit_resolvers = {None: [(_PLAIN, re.compile(""))]}  # noqa: RUF012 - the base class has no ClassVar


def parse_document(text: bytes, *, lines_before: int = 0) -> Document:
    """Read one object; a text that is neither JSON nor YAML, or no object, raises ConfigError.

    `lines_before` is how many lines of its file the text comes after: errors count from the beginning of the file.
    """
    try:
        return _parse(text)
    except BadLine as error:
        raise error.after(lines_before) from error


def _parse(text: bytes) -> Document:
    try:
        content = text.decode()
    except UnicodeDecodeError as error:
        line, column = _place(text, error.start)
        raise ConfigError(f"the text is not UTF-8 (line {line}, column {column}): save it as UTF-8") from error
    if content.lstrip().startswith("{"):
        try:
            return _finish(json.loads(content, object_pairs_hook=_Pairs, parse_constant=_no_constant))
        except (ValueError, RecursionError):
            # An object in YAML's flow style also begins with a brace; one that nests too deep is refused as such there.
            return _finish(_from_yaml(content))
    return _finish(_from_yaml(content))


def resolve_scalar(text: str) -> Json:
    """Give a plain YAML scalar its type."""
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if _INT.match(text) and (number := _integer(text.replace("_", ""))) is not None:
        return number
    return _real(text) if _FLOAT.match(text) else text


class _Pairs(list[tuple[str, "Json | _Pairs"]]):
    """A JSON or YAML mapping before its duplicates are settled."""


def _integer(text: str) -> int | None:
    """Return an integer of 64 bits; a longer one is a float, as in Go."""
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    is_octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
    try:
        value = sign * int(digits[:_LONGEST_INTEGER], 8 if is_octal else 0)
    except ValueError:
        return None
    return value if len(digits) <= _LONGEST_INTEGER and -(2**63) <= value < 2**64 else None


def _real(text: str) -> Json:
    number = float(text)
    if math.isinf(number):
        return text
    return int(number) if number.is_integer() and abs(number) < _EXPONENT_FREE else number


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finish(root: object) -> Document:
    if not isinstance(root, _Pairs):
        raise ConfigError("the text is not an object")
    duplicates: list[str] = []
    fields = _settle(root, None, duplicates)
    assert isinstance(fields, dict)
    return Document(fields, tuple(duplicates))


class _Path(NamedTuple):
    """Where a value is. It becomes a text only if that is wanted: a key may be long, and have many below it."""

    above: "_Path | None"
    step: str | int

    def __str__(self) -> str:
        steps: list[str] = []
        here: _Path | None = self
        while here is not None:
            steps.append(f"[{here.step}]" if isinstance(here.step, int) else f".{here.step[:_SHOWN]}")
            here = here.above
        return "".join(reversed(steps)).removeprefix(".")


def _settle(value: object, path: _Path | None, duplicates: list[str]) -> Json:
    if isinstance(value, _Pairs):
        settled: dict[str, Json] = {}
        for written, inner in value:
            key = _whole(written)
            where = _Path(path, key)
            if key in settled and len(duplicates) < _MOST_DUPLICATES:
                duplicates.append(str(where))
            settled[key] = _settle(inner, where, duplicates)
        return settled
    if isinstance(value, list):
        return [_settle(inner, _Path(path, index), duplicates) for index, inner in enumerate(value)]
    assert value is None or isinstance(value, bool | int | float | str)
    return _whole(value) if isinstance(value, str) else value


def _whole(text: str) -> str:
    """Return a text that can be encoded: half of a surrogate pair, which JSON can escape, is replaced as Go does."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _from_yaml(content: str) -> object:
    loader = _Loader(content)
    try:
        check_limits(yaml.parse(content, _Loader))
        node = loader.get_single_node() if "\n---" not in content else _first_node(loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadLine(line, str(error.problem), step=_CONVERTING) from error
    except yaml.reader.ReaderError as error:
        # The position is one of bytes, although the loader was given characters.
        line, column = _place(content.encode(), error.position)
        what = f"{error.reason} (U+{error.character:04X})"
        raise BadLine(line, what, column=column, step=_CONVERTING) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{_CONVERTING}yaml: {one_line(str(error))}") from error
    finally:
        loader.dispose()
    return _construct(node, ())


def _place(text: bytes, position: int) -> tuple[int, int]:
    """Return the line and the column of a byte, as an editor counts."""
    *lines, last = text[:position].split(b"\n")
    return len(lines) + 1, len(last.decode(errors="replace")) + 1


def _first_node(loader: _Loader) -> yaml.Node | None:
    # Upstream reads the first document of a stream and ignores the rest.
    return loader.get_node() if loader.check_node() else None


def _construct(node: yaml.Node | None, within: tuple[yaml.Node, ...]) -> object:
    if node is None:
        return None
    if any(node is outer for outer in within):
        raise BadLine(node.start_mark.line + 1, "an anchor contains itself")
    within = (*within, node)
    if isinstance(node, yaml.MappingNode):
        return _Pairs(_pairs(node, within))
    if isinstance(node, yaml.SequenceNode):
        return [_construct(inner, within) for inner in node.value]
    return _scalar(node)


def _pairs(node: yaml.MappingNode, within: tuple[yaml.Node, ...]) -> list[tuple[str, "Json | _Pairs"]]:
    own: list[tuple[str, Json | _Pairs]] = []
    merged: dict[str, Json | _Pairs] = {}
    for key_node, value_node in node.value:
        value = _construct(value_node, within)
        if isinstance(key_node, yaml.ScalarNode) and key_node.tag == _PLAIN and key_node.value == "<<":
            for source in [value] if isinstance(value, _Pairs) else value if isinstance(value, list) else []:
                for merged_key, merged_value in dict(source).items() if isinstance(source, _Pairs) else ():
                    merged.setdefault(merged_key, merged_value)
            continue
        key = _construct(key_node, within)
        if not isinstance(key, bool | int | float | str):
            raise BadLine(key_node.start_mark.line + 1, "a key must be a scalar")
        own.append((_key(key), value))  # type: ignore[arg-type]  # what _construct builds is exactly this union
    written = {key for key, _ in own}
    return [*((key, value) for key, value in merged.items() if key not in written), *own]


def _key(key: float | str) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _scalar(node: yaml.Node) -> Json:
    text: str = node.value
    return resolve_scalar(text) if node.tag == _PLAIN or node.tag in _RESOLVED_TAGS else text


def check_limits(events: Iterable[yaml.Event]) -> None:
    """Follow the events of the first document and raise ConfigError at the first sign of harm."""
    sizes: dict[str, int] = {}
    open_nodes: list[_Node] = []
    aliased = 0
    for count, event in enumerate(events):
        if count >= MOST_NODES:
            raise BadLine(_line(event), f"document has more than {MOST_NODES} values")
        if isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append(_Node(event.anchor))
            if len(open_nodes) > DEEPEST:
                raise BadLine(_line(event), f"nested more than {DEEPEST} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            closed = open_nodes.pop()
            if closed.anchor is not None:
                sizes[closed.anchor] = closed.size
            _grow(open_nodes, closed.size)
        elif isinstance(event, yaml.AliasEvent):
            size = sizes.get(event.anchor or "", 1)
            aliased += size
            if aliased > MOST_ALIASED:
                raise BadLine(_line(event), "document contains excessive aliasing")
            _grow(open_nodes, size)
        elif isinstance(event, yaml.ScalarEvent):
            _grow(open_nodes, 1)
        elif isinstance(event, yaml.DocumentEndEvent):
            return


class _Node:
    """A collection whose end has not been seen."""

    __slots__ = ("anchor", "size")

    def __init__(self, anchor: str | None) -> None:
        self.anchor = anchor
        self.size = 1


def _grow(open_nodes: list[_Node], size: int) -> None:
    if open_nodes:
        open_nodes[-1].size += size


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1
