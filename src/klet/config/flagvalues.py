"""What the text after a flag means: one parser per kind of flag, with the error texts of upstream's flag library.

A parser takes the text and what earlier uses of the same flag left behind, so that lists and maps accumulate. It
returns None when the text asks to leave the setting alone.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import TypeAlias

from msgspec import Struct

from klet.api.placement import Taint
from klet.api.quantity import Quantity
from klet.api.times import Duration
from klet.api.validation.formats import label_key, label_value, parse_ip
from klet.config.errors import ConfigError
from klet.config.sections import MemoryReservation, VModuleItem

FlagValue: TypeAlias = (
    bool
    | int
    | str
    | timedelta
    | Quantity
    | tuple[str, ...]
    | tuple[Taint, ...]
    | tuple[MemoryReservation, ...]
    | tuple[VModuleItem, ...]
    | Mapping[str, str]
    | Mapping[str, bool]
    | Mapping[str, tuple[str, ...]]
    | None
)
Parser: TypeAlias = Callable[[str, FlagValue], FlagValue]


class FlagKind(Struct, frozen=True):
    """A type of flag: its name in the help text, its parser, and the value of a flag given without one."""

    name: str
    parse: Parser
    implied: str = ""
    is_secret: bool = False
    """Values may hold passwords: messages do not quote them."""


_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_INTEGER = re.compile(r"[-+]?(0[bB][01_]+|0[oO]?[0-7_]*|0[xX][0-9a-fA-F_]+|[1-9][0-9_]*)")
_DECIMAL = re.compile(r"[-+]?[0-9]{1,20}")
_LONGEST_INTEGER = 70
"""Digits, in any base, that 64 bits can need."""
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def parse_bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ConfigError(f'strconv.ParseBool: parsing "{text}": invalid syntax')


def parse_integer(text: str, *, low: int, high: int, function: str = "ParseInt") -> int:
    if not _INTEGER.fullmatch(text) or (low >= 0 and text[:1] in "+-"):
        raise ConfigError(f'strconv.{function}: parsing "{text}": invalid syntax')
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    octal = len(digits) > 1 and digits[0] == "0" and digits[1] in "01234567_"
    try:
        value = sign * int(digits[:_LONGEST_INTEGER].replace("_", ""), 8 if octal else 0)
    except ValueError as error:
        raise ConfigError(f'strconv.{function}: parsing "{text}": invalid syntax') from error
    if len(digits) > _LONGEST_INTEGER or not low <= value <= high:
        raise ConfigError(f'strconv.{function}: parsing "{text}": value out of range')
    return value


def _bool(text: str, _: FlagValue) -> FlagValue:
    return parse_bool(text)


def _string(text: str, _: FlagValue) -> FlagValue:
    return text


def _int32(text: str, _: FlagValue) -> FlagValue:
    return parse_integer(text, low=-(2**31), high=2**31 - 1)


def _int64(text: str, _: FlagValue) -> FlagValue:
    return parse_integer(text, low=-(2**63), high=2**63 - 1)


def _level(text: str, _: FlagValue) -> FlagValue:
    if not _DECIMAL.fullmatch(text):
        raise ConfigError(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    value = int(text)
    if not 0 <= value < 2**31:
        raise ConfigError(f'strconv.ParseInt: parsing "{text}": value out of range')
    return value


def _duration(text: str, _: FlagValue) -> FlagValue:
    try:
        return Duration.parse(text)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _quantity(text: str, _: FlagValue) -> FlagValue:
    try:
        return Quantity.parse(text)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _ip(text: str, _: FlagValue) -> FlagValue:
    if not text:
        return None
    if parse_ip(text) is None:
        raise ConfigError(f'"{text}" is not a valid IP address')
    return text


def _version(text: str, _: FlagValue) -> FlagValue:
    return text if text == "raw" else parse_bool(text)


def _strings(text: str, earlier: FlagValue) -> FlagValue:
    before = earlier if isinstance(earlier, tuple) else ()
    if not text:
        return before
    try:
        (row,) = csv.reader([text], strict=True)
    except (csv.Error, ValueError) as error:
        raise ConfigError(f"parse error on line 1: {error}") from error
    return (*(item for item in before if isinstance(item, str)), *row)


def _split_pairs(text: str, separator: str, value_type: str, *, many: bool = True) -> Iterator[tuple[str, str]]:
    for pair in text.split(",") if many else (text,):
        if not pair and many:
            continue
        key, found, value = pair.partition(separator)
        if not found:
            raise ConfigError(f"malformed pair, expect string{separator}{value_type}")
        yield key.strip(), value.strip()


def _map(separator: str, *, many: bool = True) -> Parser:
    def parse(text: str, earlier: FlagValue) -> FlagValue:
        before = earlier if isinstance(earlier, Mapping) else {}
        kept = {key: value for key, value in before.items() if isinstance(value, str)}
        return {**kept, **dict(_split_pairs(text, separator, "string", many=many))}

    return parse


def _gates(text: str, earlier: FlagValue) -> FlagValue:
    before = earlier if isinstance(earlier, Mapping) else {}
    gates = {key: value for key, value in before.items() if isinstance(value, bool)}
    for key, value in _split_pairs(text, "=", "bool"):
        try:
            gates[key] = parse_bool(value)
        except ConfigError as error:
            raise ConfigError(f"invalid value of {key}: {value}, err: {error}") from error
    return gates


def _multimap(text: str, earlier: FlagValue) -> FlagValue:
    before = earlier if isinstance(earlier, Mapping) else {}
    found = {key: value for key, value in before.items() if isinstance(value, tuple)}
    for key, value in _split_pairs(text, ":", "string"):
        found[key] = (*found.get(key, ()), value)
    return found


def _labels(text: str, earlier: FlagValue) -> FlagValue:
    before = earlier if isinstance(earlier, Mapping) else {}
    labels = {key: value for key, value in before.items() if isinstance(value, str)}
    for pair in filter(None, text.split(",")):
        key, _, value = pair.partition("=")
        labels[key.strip()] = value.strip()
    return labels


def _memory_reservations(text: str, earlier: FlagValue) -> FlagValue:
    if not text:
        return None
    before = earlier if isinstance(earlier, tuple) else ()
    kept = tuple(item for item in before if isinstance(item, MemoryReservation))
    return (*kept, *(_memory_reservation(part) for part in text.split(";")))


def _memory_reservation(text: str) -> MemoryReservation:
    node, found, limits = text.partition(":")
    if not found or ":" in limits:
        expected = "expected numaNodeID:type=quantity[,type=quantity...]"
        raise ConfigError(f"the reserved memory has incorrect format, {expected}, got {text}")
    if not _DECIMAL.fullmatch(node) or not -(2**31) <= int(node) < 2**31:
        raise ConfigError(f"failed to convert the NUMA node ID, exptected integer, got {node}")
    return MemoryReservation(numa_node=int(node), limits=dict(_memory_limit(limit) for limit in limits.split(",")))


def _memory_limit(text: str) -> tuple[str, Quantity]:
    name, found, amount = text.partition("=")
    if not found or "=" in amount:
        raise ConfigError(f"the reserved limit has incorrect value, expected type=quantatity, got {text}")
    if name != "memory" and not name.startswith("hugepages-"):
        raise ConfigError(f'memory type conversion error, unknown type: "{name}"')
    try:
        return name, Quantity.parse(amount)
    except ValueError as error:
        raise ConfigError(f"failed to parse the quantatity, expected quantatity, got {amount}") from error


def _taints(text: str, _: FlagValue) -> FlagValue:
    taints: dict[tuple[str, str], Taint] = {}
    for part in text.split(",") if text else ():
        taint = _taint(part)
        if (taint.key, taint.effect) in taints:
            raise ConfigError(f"duplicated taints with the same key and effect: {part}")
        taints[taint.key, taint.effect] = taint
    return tuple(taints.values())


def _taint(text: str) -> Taint:
    pair, found, effect = text.partition(":")
    key, _, value = pair.partition("=")
    if not found or ":" in effect or "=" in value:
        raise ConfigError(f"invalid taint spec: {text}")
    if effect not in _EFFECTS:
        raise ConfigError(f"invalid taint effect: {effect}, unsupported taint effect")
    problems = label_value(value) or label_key(key)
    if problems:
        raise ConfigError(f"invalid taint spec: {text}, {'; '.join(problems)}")
    return Taint(key=key, value=value, effect=effect)


def _vmodule(text: str, _: FlagValue) -> FlagValue:
    items = []
    for item in filter(None, text.split(",")):
        pattern, found, level = item.partition("=")
        if not pattern or not found or "=" in level:
            raise ConfigError(f'"{item}" does not have the pattern=N format')
        try:
            verbosity = parse_integer(level, low=0, high=2**31 - 1, function="ParseUint")
        except ConfigError as error:
            raise ConfigError(f'parsing verbosity in "{item}": {error}') from error
        items.append(VModuleItem(file_pattern=pattern, verbosity=verbosity))
    return tuple(items)


BOOL = FlagKind("", _bool, implied="true")
STRING = FlagKind("string", _string)
INT32 = FlagKind("int32", _int32)
INT64 = FlagKind("int", _int64)
DURATION = FlagKind("duration", _duration)
QUANTITY = FlagKind("quantity", _quantity)
IP = FlagKind("ip", _ip)
STRINGS = FlagKind("strings", _strings)
MAP = FlagKind("mapStringString", _map("="))
OPTIONS = FlagKind("mapStringString", _map("=", many=False))
THRESHOLDS = FlagKind("mapStringString", _map("<"))
HEADERS = FlagKind("colonSeparatedMultimapStringString", _multimap, is_secret=True)
GATES = FlagKind("mapStringBool", _gates)
LABELS = FlagKind("mapStringString", _labels)
RESERVED_MEMORY = FlagKind("reserved-memory", _memory_reservations)
TAINTS = FlagKind("[]v1.Taint", _taints)
LEVEL = FlagKind("Level", _level)
VMODULE = FlagKind("pattern=N,...", _vmodule)
VERSION = FlagKind("version[=true]", _version, implied="true")
