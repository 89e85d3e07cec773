"""Instants and durations as the Kubernetes API writes them (upstream: metav1.Time, MicroTime, Duration)."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final, Self, TypeVar

from klet.errors import KletError


class TimeError(KletError, ValueError):
    """A text that is not an instant or a duration."""


Instant = TypeVar("Instant", bound=datetime)

_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.(\d+))?(Z|[+-]\d\d:\d\d)", re.ASCII)
# Characters of a bad text that a message quotes.
_SHOWN: Final = 256
_MICRO: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(?:Z|[+-]\d\d:\d\d)", re.ASCII)


class Time(datetime):
    """An instant in UTC that is written in whole seconds."""

    @classmethod
    def of(cls, instant: datetime) -> Self:
        """Return the second in which an aware instant lies."""
        return _copy(cls, instant.replace(microsecond=0))

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _RFC3339.fullmatch(text)
        if match is None:
            raise TimeError(f"{text[:_SHOWN]!r} is not an RFC 3339 time")
        fraction, zone = match.groups()
        try:
            if fraction is None and zone == "Z":
                return cls.fromisoformat(text)
            return _copy(cls, datetime.fromisoformat(f"{text[:19]}.{(fraction or '')[:6]:0<6}{zone}"))
        except (ValueError, OverflowError) as error:
            raise TimeError(f"{text[:_SHOWN]!r} is not a time: {error}") from error

    def wire(self) -> str:
        return self.isoformat(timespec="seconds")[:19] + "Z" if self.tzinfo is UTC else Time.of(self).wire()


class MicroTime(datetime):
    """An instant in UTC that is written with exactly six digits of fraction."""

    @classmethod
    def of(cls, instant: datetime) -> Self:
        return _copy(cls, instant)

    @classmethod
    def parse(cls, text: str) -> Self:
        if _MICRO.fullmatch(text) is None:
            raise TimeError(f"{text[:_SHOWN]!r} is not an RFC 3339 time with six digits of fraction")
        try:
            return _copy(cls, datetime.fromisoformat(text))
        except (ValueError, OverflowError) as error:
            raise TimeError(f"{text!r} is not a time: {error}") from error

    def wire(self) -> str:
        return self.isoformat(timespec="microseconds")[:26] + "Z" if self.tzinfo is UTC else MicroTime.of(self).wire()


class Duration(timedelta):
    """A length of time written as Go does, such as `1m30s`; what is finer than a microsecond is cut off."""

    @classmethod
    def of(cls, length: timedelta) -> Self:
        return cls(length.days, length.seconds, length.microseconds)

    @classmethod
    def parse(cls, text: str) -> Self:
        nanoseconds = parse_duration(text)
        return cls(microseconds=-(-nanoseconds // 1000) if nanoseconds < 0 else nanoseconds // 1000)

    def wire(self) -> str:
        return format_duration((self // timedelta(microseconds=1)) * 1000)


def add_length(instant: datetime, length: timedelta) -> datetime:
    """Return the instant so much later, or the last one that can be expressed: instants may come from anyone."""
    try:
        return instant + length
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # micro sign
    "μs": 10**3,  # Greek mu  # both spellings are legal
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART: Final = re.compile(r"([0-9]*)(\.[0-9]*)?([^0-9.]*)")
_MAX: Final = 2**63 - 1
_MOST_DIGITS: Final = len(str(_MAX))


def parse_duration(text: str) -> int:
    """Return the nanoseconds of a Go duration string, with the errors of Go's time.ParseDuration."""
    negative = text.startswith("-")
    position = 1 if text[:1] in ("-", "+") else 0
    if text[position:] == "0":
        return 0
    if position == len(text):
        raise _invalid(text)
    total = 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None or not (match[1] or (match[2] or "") > "."):
            raise _invalid(text)
        whole, fraction, unit = match[1].lstrip("0") or "0", (match[2] or ".")[1:], match[3]
        if not unit:
            raise TimeError(f"time: missing unit in duration {_quote(text)}")
        if unit not in _UNITS:
            raise TimeError(f"time: unknown unit {_quote(unit)} in duration {_quote(text)}")
        if len(whole) > _MOST_DIGITS:
            raise _invalid(text)
        total += int(whole) * _UNITS[unit] + _fraction(fraction, _UNITS[unit])
        if total > _MAX + negative:
            raise _invalid(text)
        position = match.end()
    return -total if negative else total


def _invalid(text: str) -> TimeError:
    return TimeError(f"time: invalid duration {_quote(text)}")


def format_duration(nanoseconds: int) -> str:
    """Return a Go duration string, as Go's Duration.String writes it."""
    if nanoseconds == 0:
        return "0s"
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest < 10**9:
        name, unit = ("ns", 1) if rest < 10**3 else ("µs", 10**3) if rest < 10**6 else ("ms", 10**6)
        return f"{sign}{_decimal(rest, unit)}{name}"
    minutes, rest = divmod(rest, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, 10**9)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else f"{sign}{text}"


def _decimal(number: int, unit: int) -> str:
    whole, fraction = divmod(number, unit)
    if not fraction:
        return str(whole)
    return f"{whole}.{fraction:0{len(str(unit)) - 1}}".rstrip("0")


def _fraction(digits: str, unit: int) -> int:
    """Return the nanoseconds after the point, in floating point as Go computes them: `0.333…h` gives 20 minutes."""
    number, scale = 0, 1.0
    for digit in digits:
        longer = number * 10 + int(digit)
        if longer > _MAX:
            break
        number, scale = longer, scale * 10
    return int(number * (unit / scale))


def _quote(text: str) -> str:
    """Quote as Go's time package does: bytes that are not plain ASCII in hexadecimal."""
    quoted = "".join(
        f"\\{char}"
        if char in '"\\'
        else char
        if " " <= char < "\x80"
        else "".join(f"\\x{byte:02x}" for byte in char.encode())
        for char in text[:_SHOWN]
    )
    return f'"{quoted}"'


def _copy(cls: type[Instant], instant: datetime) -> Instant:
    if instant.tzinfo is None:
        raise TimeError(f"{instant} has no time zone")
    instant = instant.astimezone(UTC)
    return cls(
        instant.year,
        instant.month,
        instant.day,
        instant.hour,
        instant.minute,
        instant.second,
        instant.microsecond,
        tzinfo=UTC,
    )
