"""Exact resource amounts such as `100m`, `1.5Gi` or `12e6` (upstream: apimachinery's resource.Quantity).

A quantity is a whole number of billionths, so sums and comparisons are exact integer arithmetic. It remembers the
format it was written in, and prints itself in the canonical form of that format.
"""

import re
from decimal import Decimal
from enum import Enum
from functools import lru_cache, total_ordering
from typing import Final

from klet.errors import KletError

_PATTERN: Final = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
# Possessive quantifiers: otherwise three runs of digits in a row match in many ways, and backtracking takes long.
_GRAMMAR: Final = re.compile(r"([+-]?)0*+([0-9]*+)(?:\.([0-9]*+))?+([eEinumkKMGTP]*+[-+]?[0-9]*+)")

_NANO: Final = 10**9
_MAX_INT64: Final = 2**63 - 1
_MAX_DIGITS: Final = 18  # that always fit an int64
# Far beyond any resource; a bound keeps `1e999999999` from eating the memory of the node.
_MAX_EXPONENT: Final = 1000
_USUAL_LENGTH: Final = 32

_DECIMAL_SUFFIXES: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_NAMES: Final = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_NAMES: Final = {0: "", **{exponent: suffix for suffix, exponent in _BINARY_SUFFIXES.items()}}


class QuantityError(KletError, ValueError):
    """A text that is not a quantity."""


class Format(Enum):
    """How a quantity prefers to be written."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


@total_ordering
class Quantity:
    """An immutable amount; equal to every quantity of the same value, in whatever format."""

    __slots__ = ("_text", "format", "nano")

    nano: int
    format: Format
    _text: str | None

    def __init__(self, nano: int = 0, format: Format = Format.DECIMAL_SI, *, text: str | None = None) -> None:  # noqa: A002  # upstream's word
        self.nano = nano
        self.format = format
        self._text = text

    @staticmethod
    def parse(text: str) -> "Quantity":
        """Read a quantity; the same text gives the same object."""
        return _parse_cached(text) if len(text) <= _USUAL_LENGTH else _parse(text)

    @classmethod
    def of(cls, value: int, format: Format = Format.DECIMAL_SI) -> "Quantity":  # noqa: A002  # upstream's word
        return cls(value * _NANO, format)

    @classmethod
    def of_milli(cls, value: int, format: Format = Format.DECIMAL_SI) -> "Quantity":  # noqa: A002  # upstream's word
        return cls(value * 10**6, format)

    def value(self) -> int:
        """Return the whole units, rounded away from zero."""
        return _divide_away_from_zero(self.nano, _NANO)

    def milli_value(self) -> int:
        """Return the thousandths, rounded away from zero."""
        return _divide_away_from_zero(self.nano, 10**6)

    def scaled_value(self, exponent: int) -> int:
        """Return the multiples of 10**exponent, rounded away from zero."""
        places = exponent + 9
        return self.nano * 10**-places if places < 0 else _divide_away_from_zero(self.nano, 10**places)

    def round_up(self, exponent: int) -> "Quantity":
        """Return the next multiple of 10**exponent away from zero."""
        if exponent <= -9:
            return self
        rounded = self.scaled_value(exponent) * 10 ** (exponent + 9)
        return self if rounded == self.nano else Quantity(rounded, self.format)

    @property
    def is_zero(self) -> bool:
        return self.nano == 0

    @property
    def sign(self) -> int:
        return (self.nano > 0) - (self.nano < 0)

    def as_decimal(self) -> Decimal:
        return Decimal(self.nano).scaleb(-9)

    def __float__(self) -> float:
        return self.nano / _NANO

    def __bool__(self) -> bool:
        return self.nano != 0

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nano + other.nano, self.format if self.nano else other.format)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nano - other.nano, self.format if self.nano else other.format)

    def __mul__(self, factor: int) -> "Quantity":
        return Quantity(self.nano * factor, self.format)

    def __neg__(self) -> "Quantity":
        return Quantity(-self.nano, self.format)

    def __eq__(self, other: object) -> bool:
        return self.nano == other.nano if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: "Quantity") -> bool:
        return self.nano < other.nano

    def __hash__(self) -> int:
        return hash(self.nano)

    def __str__(self) -> str:
        if self._text is None:
            self._text = _canonical(self.nano, self.format)
        return self._text

    def __repr__(self) -> str:
        return f"Quantity.parse({str(self)!r})"


ZERO: Final = Quantity(0, text="0")


def _parse(text: str) -> Quantity:
    match = _GRAMMAR.fullmatch(text)
    if match is None or not text:
        raise QuantityError(f"quantities must match the regular expression '{_PATTERN}'")
    sign, whole, fraction, suffix = match.group(1), match.group(2) or "0", match.group(3) or "", match.group(4)
    base, exponent, written = _interpret(suffix)
    if len(whole + fraction) > _MAX_EXPONENT:
        raise QuantityError("unable to parse numeric part of quantity")
    digits = int(whole + fraction)
    if base == 2:
        scaled, places = digits << exponent, -len(fraction)
    else:
        scaled, places = digits, exponent - len(fraction)
    if places >= -9:
        nano = scaled * 10 ** (places + 9)
    elif -places > len(whole + fraction) + _MAX_EXPONENT:
        nano = min(scaled, 1)  # asking for next to nothing still asks for something
    else:
        nano = -(-scaled // 10 ** -(places + 9))
    if written is Format.BINARY_SI and not _fits_quickly(whole, fraction, exponent):
        nano = min(nano, _MAX_INT64 * _NANO)
        if 0 < nano < _NANO:
            written = Format.DECIMAL_SI
    kept = text if _is_kept(written, whole, fraction, exponent) else None
    return Quantity(-nano if sign == "-" else nano, written, text=kept)


_parse_cached: Final = lru_cache(maxsize=8192)(_parse)


def _interpret(suffix: str) -> tuple[int, int, Format]:
    if (power := _DECIMAL_SUFFIXES.get(suffix)) is not None:
        return 10, power, Format.DECIMAL_SI
    if (power := _BINARY_SUFFIXES.get(suffix)) is not None:
        return 2, power, Format.BINARY_SI
    if suffix[0] in "eE":
        try:
            exponent = int(suffix[1:])
        except ValueError:
            pass
        else:
            if exponent <= _MAX_EXPONENT:
                return 10, exponent, Format.DECIMAL_EXPONENT
    raise QuantityError("unable to parse quantity's suffix")


def _fits_quickly(whole: str, fraction: str, exponent: int) -> bool:
    """Return whether upstream keeps a binary quantity in a machine word, and neither caps it nor changes its format."""
    return not fraction and 14 - len(whole) - exponent * 3 // 10 >= 0


def _is_kept(written: Format, whole: str, fraction: str, exponent: int) -> bool:
    """Return whether upstream takes the text for canonical and prints it again as it stands."""
    digits = whole + fraction
    if written is Format.BINARY_SI:
        return _fits_quickly(whole, fraction, exponent) and int(whole) & 7 != 0
    places = exponent - len(fraction)
    return (
        len(digits) <= _MAX_DIGITS
        and places >= -9
        and places % 3 == 0
        and not digits.endswith("000")
        and digits[0] != "0"
    )


def _canonical(nano: int, written: Format) -> str:
    if nano == 0:
        return "0"
    if written is Format.BINARY_SI and abs(nano) >= 1024 * _NANO and nano % _NANO == 0:
        amount, exponent = nano // _NANO, 0
        while amount % 1024 == 0 and exponent < 60:
            amount, exponent = amount // 1024, exponent + 10
        return f"{amount}{_BINARY_NAMES[exponent]}"
    amount, exponent = nano, -9
    while amount % 1000 == 0:
        amount, exponent = amount // 1000, exponent + 3
    suffix = _DECIMAL_NAMES.get(exponent)
    if suffix is None or (written is Format.DECIMAL_EXPONENT and exponent):
        suffix = f"e{exponent}"
    return f"{amount}{suffix}"


def _divide_away_from_zero(number: int, divisor: int) -> int:
    return -(-number // divisor) if number > 0 else number // divisor
