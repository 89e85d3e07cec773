"""A hostile neighbour: exchanges two paths again and again, as a container may do in a volume that it shares."""

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_HERE: Final = -100
_EXCHANGE: Final = 2


def exchange(first: Path, second: Path) -> None:
    """Each becomes the other, in one step (renameat2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_HERE, os.fsencode(first), _HERE, os.fsencode(second), _EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(first))


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
