"""Runs a program under strace and reads what it did to the files below one directory."""

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

STRACE: Final = shutil.which("strace")
CALLS: Final = (
    "openat,write,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,"
    "symlink,symlinkat,link,linkat,mkdir,mkdirat,lseek,close"
)
LONGEST_DATA: Final = 1 << 20
_LINE: Final = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+|\?)(?:<([^>]*)>)?.*")
_UNFINISHED: Final = re.compile(r"(\d+) +(.*) <unfinished \.\.\.>")
_RESUMED: Final = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)")
_BYTE: Final = re.compile(r"\\x([0-9a-f]{2})")


class SystemCall(Struct, frozen=True):
    """One call that succeeded."""

    name: str
    arguments: tuple[str, ...]
    result: int


def trace(argv: Sequence[str], *, log: Path) -> list[SystemCall]:
    """Run a program, which must succeed, and return its calls about files in their order."""
    if STRACE is None:
        raise FileNotFoundError("strace is missing: apt-get install strace")
    options = ["-f", "-y", "-xx", "-s", str(LONGEST_DATA), "--seccomp-bpf", "-e", f"trace={CALLS}"]
    subprocess.run([STRACE, *options, "-o", str(log), *argv], check=True)
    return list(parse(log.read_text().splitlines()))


def parse(lines: Iterable[str]) -> Iterator[SystemCall]:
    """Parse strace's output with options -f and -xx; calls of several threads may overlap."""
    begun: dict[str, str] = {}
    for line in lines:
        if found := _UNFINISHED.fullmatch(line):
            begun[found[1]] = found[2]
            continue
        if found := _RESUMED.fullmatch(line):
            line = f"{found[1]} {begun.pop(found[1])}{found[2]}"
        if (call := _LINE.fullmatch(line)) and call[4] != "?" and int(call[4]) >= 0:
            yield SystemCall(call[2], tuple(_split(call[3])), int(call[4]))


def text_of(argument: str) -> bytes:
    """Return a string argument, or the path that strace shows for a descriptor."""
    return bytes(int(byte, 16) for byte in _BYTE.findall(argument))


def descriptor_of(argument: str) -> int:
    """Return the number of a descriptor; -1 for the working directory."""
    number = argument.partition("<")[0]
    return int(number) if number.isdigit() else -1


def _split(arguments: str) -> Iterator[str]:
    # With -xx no string and no path has a comma of its own.
    return (each.strip() for each in arguments.split(","))
