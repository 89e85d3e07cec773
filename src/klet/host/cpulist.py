"""CPU lists as the kernel writes them (`0-3,8`), and their bit mask as systemd wants it."""

from collections.abc import Iterable

from klet.host.errors import MalformedFile

# Of the number of a CPU: Linux knows a few thousand at most.
_MOST_DIGITS = 5
_SHOWN = 256


def parse_cpu_list(text: str) -> frozenset[int]:
    """Read `0-3,8`; the empty list is the empty text."""
    ranges: list[tuple[int, int]] = []
    for part in text.strip().split(",") if text.strip() else ():
        first, dash, last = part.partition("-")
        try:
            start = _number(first)
            end = _number(last) if dash else start
        except ValueError:
            shown, bad = text[:_SHOWN], part[:_SHOWN]
            raise MalformedFile(f"CPU list {shown!r}: {bad!r} is neither a number nor a range") from None
        if start > end:
            raise MalformedFile(f'invalid range "{part}" ({start} > {end})')
        ranges.append((start, end))
    cpus: list[int] = []
    following = 0
    for start, end in sorted(ranges):
        # Each number once, however often it was named.
        cpus.extend(range(max(start, following), end + 1))
        following = max(following, end + 1)
    return frozenset(cpus)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Write sorted numbers with runs collapsed: `0-5,34`."""
    runs: list[tuple[int, int]] = []
    for cpu in sorted(set(cpus)):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1] = (runs[-1][0], cpu)
        else:
            runs.append((cpu, cpu))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def cpu_mask(cpus: Iterable[int]) -> bytes:
    """Return the mask: bit n % 8 of byte n // 8 stands for CPU n."""
    wanted = set(cpus)
    mask = bytearray(max(wanted, default=-1) // 8 + 1)
    for cpu in wanted:
        mask[cpu // 8] |= 1 << cpu % 8
    return bytes(mask)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > _MOST_DIGITS:
        raise ValueError
    return int(text)
