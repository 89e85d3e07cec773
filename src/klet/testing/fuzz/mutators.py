"""Ways to change an input: bytes, lines, the values of a JSON text. Which ones, a target chooses. Pure.

Each takes the random numbers from outside, so that one seed makes one sequence of inputs.
"""

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeAlias

from klet.testing.fuzz.target import Amplify, Mutate, Recipe

Step: TypeAlias = Callable[[Random, bytes, Sequence[bytes]], bytes]

NUMBERS: Final = (
    b"0",
    b"-1",
    b"1",
    b"255",
    b"65536",
    b"2147483648",
    b"9223372036854775808",
    b"1e999",
    b"-0.0",
    b"9" * 400,
)
_NESTS: Final = ((b"[", b"]"), (b'{"a":', b"}"), (b"{", b"}"), (b"(", b")"), (b"[", b""), (b"- ", b""), (b"? ", b""))
_ODD_BYTES: Final = tuple(
    bytes([value]) for value in (0, 9, 10, 11, 13, 32, 34, 39, 58, 92, 127, 128, 133, 160, 195, 255)
)
_NUMBER: Final = re.compile(rb"[0-9]+")
_LONGEST_PIECE: Final = 64
_LONGEST_JSON: Final = 64 << 10


def choose_of(steps: Sequence[Step], *, most: int = 4) -> Mutate:
    """Apply one to a few of the steps, one after the other."""

    def mutate(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
        for _ in range(random.randint(1, most)):
            data = random.choice(steps)(random, data, others)
        return data

    return mutate


def behind_first_line(mutate: Step) -> Step:
    """Leave the first line, which says what kind of input it is, as it mostly has to be."""

    def step(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
        if random.random() < 0.01:
            return mutate(random, data, others)
        first, line_end, rest = data.partition(b"\n")
        return first + line_end + mutate(random, rest, [other.partition(b"\n")[2] for other in pick(random, others)])

    return step


def pick(random: Random, others: Sequence[bytes]) -> Sequence[bytes]:
    return [random.choice(others)] if others else []


def change_bytes(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Flip, put in, take out, double, move or cut bytes, or take a piece of another input."""
    start, end = _span(random, data)
    match random.randrange(9):
        case 0:
            return data[:start] + bytes([random.randrange(256)]) + data[start + 1 :]
        case 1:
            return data[:start] + random.choice(_ODD_BYTES) * random.choice((1, 1, 2, 40)) + data[start:]
        case 2:
            return data[:start] + data[end:]
        case 3:
            return data[:end] + data[start:end] * random.choice((1, 1, 2, 16)) + data[end:]
        case 4:
            at, _ = _span(random, data)
            return data[:at] + data[start:end] + data[at:]
        case 5:
            return data[:start]
        case 6:
            return data[:start] + random.choice(NUMBERS) + data[end:]
        case 7:
            return change_number(random, data, others)
        case _:
            other = random.choice(others) if others else data
            from_, to = _span(random, other)
            return data[:start] + other[from_:to] + data[end:]


def change_number(random: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    """Put another number where one is."""
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    number = random.choice(found)
    return data[: number.start()] + random.choice(NUMBERS) + data[number.end() :]


def change_lines(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Take out, double, swap or indent lines, change how one ends, or take one of another input."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    at, to = random.randrange(len(lines)), random.randrange(len(lines))
    match random.randrange(7):
        case 0:
            del lines[at]
        case 1:
            lines.insert(to, lines[at])
        case 2:
            lines[at], lines[to] = lines[to], lines[at]
        case 3:
            lines[at] = random.choice((b" ", b"\t", b"  ", b"- ", b"\xc2\xa0")) + lines[at]
        case 4:
            lines[at] = lines[at].rstrip(b"\r\n") + random.choice(
                (b"\n", b"\r\n", b"\r", b"\r\r\n", b"", b" \n", b"\x85")
            )
        case 5:
            lines[at] = lines[at].swapcase()
        case _:
            borrowed = random.choice(others).splitlines(keepends=True) if others else []
            lines.insert(to, random.choice(borrowed or lines))
    return b"".join(lines)


def put_words(words: Sequence[bytes]) -> Step:
    """Put one of the format's own words somewhere: at a place, over a span, or as a line."""

    def step(random: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
        start, end = _span(random, data)
        word = random.choice(words)
        match random.randrange(3):
            case 0:
                return data[:start] + word + data[start:]
            case 1:
                return data[:start] + word + data[end:]
            case _:
                lines = data.splitlines(keepends=True)
                lines.insert(random.randint(0, len(lines)), word + random.choice((b"\n", b"\r\n")))
                return b"".join(lines)

    return step


def change_json(keys: Sequence[str], values: Sequence[object] = ()) -> Step:
    """Change one value of a JSON text; one that is none is changed by its bytes."""
    odd: tuple[object, ...] = (*_ODD_VALUES, *values)

    def step(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
        try:
            root = json.loads(data) if len(data) <= _LONGEST_JSON else None
        except (ValueError, RecursionError):
            return change_bytes(random, data, others)
        holder: list[object] = [root]
        _change_value(random, holder, keys, odd)
        try:
            text = json.dumps(holder[0], ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
        except (ValueError, RecursionError):
            return data
        return _double_key(random, text) if random.random() < 0.05 else text

    return step


def amplify_bytes(pairs: Sequence[tuple[bytes, bytes]] = ()) -> Amplify:
    """Repeat a piece of an input where it is, behind its start alone, or with something that closes it."""
    nests = (*_NESTS, *pairs)

    def amplify(random: Random, data: bytes) -> Recipe:
        start, end = _span(random, data or b"a", least=1)
        piece = data[start:end] or b"a"
        match random.randrange(6):
            case 0 | 1:
                return Recipe(data[:start], piece, after=data[end:])
            case 2:
                return Recipe(data[:start], piece)
            case 3:
                line_start = data.rfind(b"\n", 0, start) + 1
                line_end = data.find(b"\n", end) + 1 or len(data)
                return Recipe(data[:line_start], data[line_start:line_end] or b"\n", after=data[line_end:])
            case 4:
                return Recipe(data[:start], random.choice(_ODD_BYTES), after=data[start:])
            case _:
                opening, closing = random.choice(nests)
                return Recipe(data[:start], opening, middle=piece, closing=closing, after=data[end:])

    return amplify


def amplify_behind_first_line(amplify: Amplify) -> Amplify:
    """Leave the first line as it is."""

    def behind(random: Random, data: bytes) -> Recipe:
        first, line_end, rest = data.partition(b"\n")
        recipe = amplify(random, rest)
        return Recipe(first + line_end + recipe.before, recipe.piece, recipe.middle, recipe.closing, recipe.after)

    return behind


_ODD_VALUES: Final[tuple[object, ...]] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    1e300,
    2**31,
    2**63,
    2**64,
    -(2**63) - 1,
    10**400,
    "",
    " ",
    "a",
    "0",
    "-1",
    "null",
    "\x00",
    "a\nb",
    "é",
    "\ud800",
    "\u2028",
    "../..",
    "/",
    "a/b",
    ".",
    "..",
    "%s",
    "a" * 300,
    "9" * 5000,
    "1Ei",
    "1e99999",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999999+14:00",
    "2020-01-01T00:00:00-23:59",
    "http://[",
    "https://a:99999999/",
    "::1",
    "127.0.0.1",
    [],
    {},
    [[]],
    [None],
    {"a": None},
)


def _change_value(random: Random, holder: list[object], keys: Sequence[str], odd: Sequence[object]) -> None:
    """Walk down to some value and change it in the list or mapping that holds it."""
    here: list[object] | dict[str, object] = holder
    at: int | str = 0
    while True:
        value = here[at] if isinstance(here, dict) and isinstance(at, str) else here[int(at)]  # type: ignore[index]  # one or the other
        if not isinstance(value, list | dict) or not value or random.random() < 0.15:
            break
        here = value
        at = random.choice(list(value)) if isinstance(value, dict) else random.randrange(len(value))
    match random.randrange(6):
        case 0 | 1:
            new: object = random.choice(odd)
        case 2:
            new = {random.choice(keys): value} if random.random() < 0.5 else [value, value]
        case 3 if isinstance(value, dict):
            new = {**value, random.choice(keys): random.choice(odd)}
        case 3 if isinstance(value, list):
            new = [*value, random.choice(odd)] if random.random() < 0.5 else value * 3
        case 4 if isinstance(value, str):
            at_ = random.randint(0, len(value))
            new = value[:at_] + str(random.choice(odd)) + value[at_:]
        case _:
            if isinstance(here, dict):
                here.pop(str(at))
            elif here is not holder:
                del here[int(at)]
            return
    here[at] = new  # type: ignore[index]  # one or the other


def _double_key(random: Random, text: bytes) -> bytes:
    """Write one member of an object twice."""
    members = list(re.finditer(rb'"[a-zA-Z]+": (?:"[^"]*"|[0-9]+|true|null)', text))
    if not members:
        return text
    member = random.choice(members)
    return text[: member.end()] + b", " + member[0] + text[member.end() :]


def _span(random: Random, data: bytes, *, least: int = 0) -> tuple[int, int]:
    start = random.randint(0, max(0, len(data) - least))
    length = min(random.choice((1, 1, 2, 4, 8, 16, _LONGEST_PIECE)), len(data) - start)
    return start, start + max(length, least)
