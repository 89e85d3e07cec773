"""A hostile neighbour: exchanges two paths again and again, as a container may do in a volume that it shares."""

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

HERE: Final = -100
_NO_REPLACE: Final = 1
_EXCHANGE: Final = 2
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def exchange(first: str | Path, second: str | Path, *, first_in: int = HERE, second_in: int = HERE) -> None:
    """Exchange the two in one step (renameat2). Names may be relative to open directories."""
    _rename(first, second, first_in, second_in, _EXCHANGE)


def move(first: str, second: str, *, first_in: int, second_in: int) -> None:
    """Give something a new name that nothing has yet."""
    _rename(first, second, first_in, second_in, _NO_REPLACE)


@contextmanager
def swapping(first: Path, second: Path) -> Iterator[None]:
    """Exchange them in a thread for as long as this holds; they are as they were afterwards."""
    ended = threading.Event()

    def swap() -> None:
        while not ended.is_set():
            exchange(first, second)
            exchange(first, second)

    swapper = threading.Thread(target=swap, name="swapper")
    swapper.start()
    try:
        yield
    finally:
        ended.set()
        swapper.join()


def _rename(first: str | Path, second: str | Path, first_in: int, second_in: int, flags: int) -> None:
    if _LIBC.renameat2(first_in, os.fsencode(first), second_in, os.fsencode(second), flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(first))
