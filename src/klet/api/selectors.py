"""Label selectors: the text form of list and watch requests, and the LabelSelector of objects.

Upstream: apimachinery's labels package. The grammar: requirements joined by commas, each `key`, `!key`, `key=value`
(also `==`, `!=`), `key in (a,b)`, `key notin (a,b)`, `key>1` or `key<1`.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from klet.api.meta import LabelSelector
from klet.api.validation.formats import label_key, label_value
from klet.errors import KletError


class SelectorError(KletError, ValueError):
    """A selector that cannot be understood."""


class Operator(StrEnum):
    """How the value of a label is compared."""

    IN = "in"
    NOT_IN = "notin"
    EQUALS = "="
    DOUBLE_EQUALS = "=="
    NOT_EQUALS = "!="
    GREATER = "gt"
    LESS = "lt"
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"


class Requirement(Struct, frozen=True):
    """One condition on one label."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN | Operator.EQUALS | Operator.DOUBLE_EQUALS:
                return value is not None and value in self.values
            case Operator.NOT_IN | Operator.NOT_EQUALS:
                return value is None or value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.GREATER | Operator.LESS:
                return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        if value is None or len(self.values) != 1:
            return False
        actual, bound = parse_int64(value), parse_int64(self.values[0])
        if actual is None or bound is None:
            return False
        return actual > bound if self.operator is Operator.GREATER else actual < bound

    def __str__(self) -> str:
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case Operator.IN | Operator.NOT_IN:
                return f"{self.key} {self.operator} ({','.join(sorted(self.values))})"
            case Operator.GREATER | Operator.LESS:
                return f"{self.key}{'>' if self.operator is Operator.GREATER else '<'}{self.values[0]}"
            case _:
                return f"{self.key}{self.operator}{self.values[0]}"


class Selector(Struct, frozen=True):
    """Requirements that must all hold; without any, everything matches."""

    requirements: tuple[Requirement, ...] = ()
    selects_nothing: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        return not self.selects_nothing and all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


EVERYTHING: Final = Selector()
NOTHING: Final = Selector(selects_nothing=True)


def parse_label_selector(text: str) -> Selector:
    """Read the text form, such as `app=web,tier in (a,b),!old`."""
    return Selector(tuple(sorted(_Parser(text).requirements(), key=lambda requirement: requirement.key)))


def label_selector(selector: LabelSelector | None) -> Selector:
    """Return the selector of an object; None selects nothing, an empty one everything."""
    if selector is None:
        return NOTHING
    requirements = [checked_requirement(key, Operator.EQUALS, (value,)) for key, value in selector.match_labels.items()]
    for expression in selector.match_expressions:
        operator = _EXPRESSION_OPERATORS.get(expression.operator)
        if operator is None:
            raise SelectorError(f'"{expression.operator}" is not a valid label selector operator')
        requirements.append(checked_requirement(expression.key, operator, expression.values))
    return Selector(tuple(sorted(requirements, key=lambda requirement: requirement.key)))


def checked_requirement(key: str, operator: Operator, values: tuple[str, ...]) -> Requirement:
    """Return a condition, or raise SelectorError if no label could have such a key or value (NewRequirement)."""
    problems = [f'key: Invalid value: "{key}": {"; ".join(messages)}'] if (messages := label_key(key)) else []
    if operator in (Operator.IN, Operator.NOT_IN) and not values:
        problems.append("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty")
    if operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST) and values:
        shown = ", ".join(f'"{value}"' for value in values)
        problems.append(f"values: Invalid value: [{shown}]: values set must be empty for exists and does not exist")
    for index, value in enumerate(values):
        if operator in (Operator.GREATER, Operator.LESS) and parse_int64(value) is None:
            rule = "for 'Gt', 'Lt' operators, the value must be an integer"
            problems.append(f'values[{index}]: Invalid value: "{value}": {rule}')
        if messages := label_value(value):
            problems.append(f'values[{index}][{key}]: Invalid value: "{value}": {"; ".join(messages)}')
    if problems:
        raise SelectorError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
    return Requirement(key, operator, values)


def is_integer(text: str) -> bool:
    """Return whether Go's ParseInt reads a text as a whole number, of whatever size."""
    return _INTEGER.fullmatch(text) is not None


def parse_int64(text: str) -> int | None:
    """Return a whole number as Go's ParseInt reads it: decimal digits, an optional sign, 64 bits."""
    if _INTEGER.fullmatch(text) is None or len(text) > 64:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_EXPRESSION_OPERATORS: Final = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
}
_SYMBOLS: Final = {
    "in": Operator.IN,
    "notin": Operator.NOT_IN,
    "=": Operator.EQUALS,
    "==": Operator.DOUBLE_EQUALS,
    "!=": Operator.NOT_EQUALS,
    ">": Operator.GREATER,
    "<": Operator.LESS,
}
_TOKEN: Final = re.compile(r"[ \t\r\n]*(==|!=|[=!(),<>]|[^=!(),<> \t\r\n]+|$)")
_PUNCTUATION: Final = frozenset(("(", ")", ",", "!", *(symbol for symbol in _SYMBOLS if not symbol.isalpha())))

# What a set of values may go on with, after an opening parenthesis, a comma or a value.
_EXPECTED: Final = {"(": "',', ')' or identifier", ",": "',', or identifier"}
_AFTER_VALUE: Final = "',' or ')'"


class _Parser:
    """Reads requirements from words and signs; the empty word is the end."""

    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._next = 0

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        while (word := self._peek()) != "":
            if word in _PUNCTUATION and word != "!":
                raise SelectorError(f"found '{word}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            if (word := self._take()) == "":
                break
            if word != ",":
                raise SelectorError(f"found '{word}', expected: ',' or 'end of string'")
            following = self._peek()
            if following == "" or (following in _PUNCTUATION and following != "!"):
                raise SelectorError(f"found '{following}', expected: identifier after ','")
        return found

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        word = self._peek()
        self._next += 1
        return word

    def _requirement(self) -> Requirement:
        key = self._take()
        negated = key == "!"
        if negated:
            key = self._take()
        if key == "" or key in _PUNCTUATION:
            raise SelectorError(f"found '{key}', expected: identifier")
        if messages := label_key(key):
            raise SelectorError(f'<nil>: Invalid value: "{key}": {"; ".join(messages)}')
        if negated:
            return Requirement(key, Operator.DOES_NOT_EXIST)
        if self._peek() in ("", ","):
            return Requirement(key, Operator.EXISTS)
        operator = self._operator()
        if operator in (Operator.IN, Operator.NOT_IN):
            return checked_requirement(key, operator, self._set())
        return checked_requirement(key, operator, (self._value(),))

    def _operator(self) -> Operator:
        word = self._take()
        if word not in _SYMBOLS:
            raise SelectorError(f"found '{word}', expected: in, notin, =, ==, !=, gt, lt")
        return _SYMBOLS[word]

    def _value(self) -> str:
        if self._peek() in ("", ","):
            return ""
        word = self._take()
        if word in _PUNCTUATION:
            raise SelectorError(f"found '{word}', expected: identifier")
        return word

    def _set(self) -> tuple[str, ...]:
        word = self._take()
        if word != "(":
            raise SelectorError(f"found '{word}' expected: '('")
        values: set[str] = set()
        before = "("
        while (word := self._take()) != ")":
            if word != "," and (word == "" or word in _PUNCTUATION or before not in _EXPECTED):
                raise SelectorError(f"found '{word}', expected: {_EXPECTED.get(before, _AFTER_VALUE)}")
            if word != ",":
                values.add(word)
            elif before in _EXPECTED:
                values.add("")
            before = word
        if before in _EXPECTED:
            values.add("")
        return tuple(sorted(values))
