"""Container output in the CRI log format, and where it goes: real files, or memory."""

from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Protocol

# The longest piece of a line in one record.
MAX_RECORD = 16 * 1024


class LogSink(Protocol):
    """Where the fake runtime writes. A writer keeps its file when the path is renamed, until it reopens."""

    def open(self, path: str) -> None: ...

    def write(self, path: str, data: bytes) -> None: ...

    def close(self, path: str) -> None: ...

    def write_file(self, path: str, content: bytes) -> None:
        """Write what a container wrote to a mounted file."""
        ...


class FileSink:
    """Real files, for containers whose logs the agent reads."""

    def __init__(self) -> None:
        self._files: dict[str, BinaryIO] = {}

    def open(self, path: str) -> None:
        self.close(path)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._files[path] = Path(path).open("ab", buffering=0)  # noqa: SIM115  # it stays open until `close`

    def write(self, path: str, data: bytes) -> None:
        if path in self._files:
            self._files[path].write(data)

    def close(self, path: str) -> None:
        file = self._files.pop(path, None)
        if file is not None:
            file.close()

    def close_all(self) -> None:
        for path in list(self._files):
            self.close(path)

    def write_file(self, path: str, content: bytes) -> None:
        if not Path(path).is_dir():
            Path(path).write_bytes(content)


class MemorySink:
    """Files in memory, for simulations."""

    def __init__(self) -> None:
        self._files: dict[str, bytearray] = {}
        self._writers: dict[str, bytearray] = {}

    def open(self, path: str) -> None:
        self._writers[path] = self._files.setdefault(path, bytearray())

    def write(self, path: str, data: bytes) -> None:
        if path in self._writers:
            self._writers[path] += data

    def close(self, path: str) -> None:
        self._writers.pop(path, None)

    def write_file(self, path: str, content: bytes) -> None:
        self._files[path] = bytearray(content)

    def read(self, path: str) -> bytes | None:
        """Return the content, or None when there is no such file."""
        content = self._files.get(path)
        return None if content is None else bytes(content)

    def rename(self, old: str, new: str) -> None:
        self._files[new] = self._files.pop(old)

    def remove(self, path: str) -> None:
        self._files.pop(path, None)

    def paths(self) -> list[str]:
        return list(self._files)


def format_records(text: str, *, stream: str, stamp: int, newline: bool = True) -> bytes:
    """Format a line of output as log records: pieces of a long line and an unfinished line are marked P, the end F."""
    data = text.encode()
    pieces = [data[start : start + MAX_RECORD] for start in range(0, len(data), MAX_RECORD)] or [b""]
    if not newline and not data:
        return b""
    last = len(pieces) - 1
    head = f"{format_stamp(stamp)} {stream}".encode()
    tags = [b"F" if newline and number == last else b"P" for number in range(len(pieces))]
    return b"".join(b"%b %b %b\n" % (head, tag, piece) for tag, piece in zip(tags, pieces, strict=True))


def format_stamp(stamp: int) -> str:
    """Format as RFC 3339 with nanoseconds, trailing zeros cut, as Go prints it."""
    seconds, fraction = divmod(stamp, 1_000_000_000)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    digits = f"{fraction:09d}".rstrip("0")
    return f"{text}.{digits}Z" if digits else f"{text}Z"
