"""A file that one process at a time holds. The kernel lets go of it with the process, however that ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from klet.host.errors import HostError, file_error
from klet.host.procfs import ProcReader

_LONGEST_PID = 20


class LockHeld(HostError):
    """Another process has it."""

    def __init__(self, message: str, *, holder: str) -> None:
        super().__init__(message)
        self.holder = holder
        """As `name (pid 7)`; empty if it cannot be seen."""


@contextmanager
def hold_file(path: Path, *, proc: ProcReader | None = None) -> Iterator[None]:
    """Hold a file, made if need be, until the block is left. Raises LockHeld, or FileError where there can be none."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise file_error("lock", path, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = _holder(descriptor, proc or ProcReader())
            raise LockHeld(f"{path} is held by {holder or 'another process'}", holder=holder) from error
        except OSError as error:
            raise file_error("lock", path, error) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        # The file stays: removing it would take it from another process that has just opened it.
        os.close(descriptor)


def _holder(descriptor: int, proc: ProcReader) -> str:
    text = os.pread(descriptor, _LONGEST_PID, 0).decode("ascii", errors="replace").strip()
    if not text.isdecimal():
        return ""
    try:
        return f"{proc.process_stat(int(text)).name} (pid {text})"
    except HostError:
        return f"pid {text}"
