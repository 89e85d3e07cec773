"""A command line parser that behaves as Go's pflag: the same spellings, the same errors, the same warnings."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from klet.api.validation.rendering import go_quote
from klet.config.errors import ConfigError
from klet.config.flagvalues import FlagKind, FlagValue
from klet.config.places import MASK


class FlagTarget(StrEnum):
    """Where the value of a flag goes."""

    CONFIGURATION = "KubeletConfiguration"
    FLAGS = "KubeletFlags"
    KLET = "KletConfiguration"
    NONE = ""


class Flag(Struct, frozen=True):
    """One flag: how it is written, what it sets, how the help text shows it."""

    name: str
    kind: FlagKind
    section: str
    help: str
    target: FlagTarget = FlagTarget.NONE
    field: str = ""
    """The field it sets: a path of wire names in a configuration, an attribute elsewhere."""
    shorthand: str = ""
    deprecated: str = ""
    default: str = ""
    """The default to show when no struct holds it."""


class ParsedFlags(Struct, frozen=True):
    """The values that the command line gave, by the flags' own names, and what else stood on it."""

    values: Mapping[str, FlagValue]
    positional: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def parse_flags(arguments: Sequence[str], flags: Sequence[Flag]) -> ParsedFlags:
    """Read a command line; the first mistake raises ConfigError."""
    return _Parsing(flags).run(arguments)


def normalize(name: str) -> str:
    """Flag names may be written with underscores."""
    return name.replace("_", "-")


class _Parsing:
    """One run over a command line."""

    def __init__(self, flags: Sequence[Flag]) -> None:
        self._by_name = {flag.name: flag for flag in flags}
        self._by_shorthand = {flag.shorthand: flag for flag in flags if flag.shorthand}
        self._values: dict[str, FlagValue] = {}
        self._warnings: dict[str, None] = {}
        self._positional: list[str] = []

    def run(self, arguments: Sequence[str]) -> ParsedFlags:
        rest = list(reversed(arguments))
        while rest:
            argument = rest.pop()
            if argument == "--":
                self._positional.extend(reversed(rest))
                break
            if len(argument) < 2 or not argument.startswith("-"):
                self._positional.append(argument)
            elif argument.startswith("--"):
                self._long(argument, rest)
            else:
                self._short(argument, rest)
        return ParsedFlags(self._values, tuple(self._positional), tuple(self._warnings))

    def _long(self, argument: str, rest: list[str]) -> None:
        name, equals, value = argument[2:].partition("=")
        if not name or name.startswith("-"):
            raise ConfigError(f"bad flag syntax: {argument}")
        flag = self._by_name.get(normalize(name))
        if flag is None:
            raise ConfigError(f"unknown flag: --{name}")
        if equals:
            self._set(flag, value)
        elif flag.kind.implied:
            self._set(flag, flag.kind.implied)
        elif rest:
            self._set(flag, rest.pop())
        else:
            raise ConfigError(f"flag needs an argument: {argument}")

    def _short(self, argument: str, rest: list[str]) -> None:
        letters = argument[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            flag = self._by_shorthand.get(letter)
            if flag is None:
                raise ConfigError(f"unknown shorthand flag: '{letter}' in {argument}")
            if letters.startswith("=") and len(letters) > 1:
                self._set(flag, letters[1:])
                return
            if flag.kind.implied:
                self._set(flag, flag.kind.implied)
            elif letters:
                self._set(flag, letters)
                return
            elif rest:
                self._set(flag, rest.pop())
            else:
                raise ConfigError(f"flag needs an argument: '{letter}' in {argument}")

    def _set(self, flag: Flag, text: str) -> None:
        try:
            self._values[flag.name] = flag.kind.parse(text, self._values.get(flag.name))
        except ConfigError as error:
            shown = f"-{flag.shorthand}, --{flag.name}" if flag.shorthand else f"--{flag.name}"
            quoted = MASK if flag.kind.is_secret else go_quote(text)
            raise ConfigError(f'invalid argument {quoted} for "{shown}" flag: {error}') from error
        if flag.deprecated:
            self._warnings[f"Flag --{flag.name} has been deprecated, {flag.deprecated}"] = None
