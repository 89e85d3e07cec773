"""A first file system for a kernel: a cpio archive, and the modules in the order in which they can be loaded."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_DIRECTORY, _FILE = 0o040755, 0o100000


def build_archive(directories: Sequence[str], files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """Return an archive of directories and of files with their modes."""
    return b"".join(_entries(directories, files))


def module_files(directory: Path, names: Sequence[str]) -> list[Path]:
    """Return the files of modules, each after those it needs."""
    needs = {}
    for line in (directory / "modules.dep").read_text().splitlines():
        path, _, others = line.partition(":")
        needs[Path(path).stem] = [path, *others.split()]
    # The list of a module names the last dependency first.
    wanted = [path for name in names for path in reversed(needs[name])]
    return [directory / path for path in dict.fromkeys(wanted)]


def _entries(directories: Sequence[str], files: Mapping[str, tuple[bytes, int]]) -> Iterator[bytes]:
    for directory in directories:
        yield _entry(directory, b"", _DIRECTORY)
    for name, (data, mode) in files.items():
        yield _entry(name, data, _FILE | mode)
    yield _entry("TRAILER!!!", b"", 0)


def _entry(name: str, data: bytes, mode: int) -> bytes:
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return _pad(head) + _pad(data)


def _pad(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
