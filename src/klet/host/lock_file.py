"""Upstream's `--lock-file`: one agent at a time, by a file that the kernel releases with the process.

Unlike the lock of the root directory (`root_directory.py`) it is waited for, and may be handed on.
"""

import asyncio
import errno
import fcntl
import logging
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from asyncinotify import Inotify, Mask

from klet.aio.clock import Clock
from klet.host.errors import HostError

logger = logging.getLogger(__name__)

_TRY_AGAIN: Final = timedelta(milliseconds=100)


@asynccontextmanager
async def wait_for_lock(path: Path, *, clock: Clock) -> AsyncIterator[int]:
    """Hold a file, made if need be, until the block is left; wait as long as another process has it.

    Yields the descriptor. Raises HostError in upstream's words where there can be no lock.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise _cannot_lock(path, error) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _cannot_lock(path, OSError(errno.EINVAL, "not a regular file"))
        # Tried again and again: a thread that waits in flock could not be called off, and the process not end.
        while not _try_lock(descriptor, path):
            await clock.sleep(_TRY_AGAIN)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def watch_lock(descriptor: int, *, when_wanted: Callable[[], None]) -> Iterator[None]:
    """Call back when another process opens the locked file or deletes it (upstream's watchForLockfileContention).

    The file itself is watched, whatever gets its name. While it is open the kernel reports no deletion, only that it
    has one name less.
    """
    loop = asyncio.get_running_loop()

    def look() -> None:
        for event in notifier:
            if event.mask & (Mask.OPEN | Mask.DELETE_SELF) or os.fstat(descriptor).st_nlink == 0:
                what = "opened" if event.mask & Mask.OPEN else "deleted"
                logger.warning("The lock file is wanted by another process, so this agent ends", extra={"file": what})
                when_wanted()

    try:
        notifier = Inotify(sync_timeout=0)
    except OSError as error:
        raise HostError(f"cannot watch the lock file (--exit-on-lock-contention): {error.strerror}") from error
    with notifier:
        try:
            notifier.add_watch(Path(f"/proc/self/fd/{descriptor}"), Mask.OPEN | Mask.DELETE_SELF | Mask.ATTRIB)
        except OSError as error:
            raise HostError(f"cannot watch the lock file (--exit-on-lock-contention): {error.strerror}") from error
        loop.add_reader(notifier.fd, look)
        try:
            yield
        finally:
            loop.remove_reader(notifier.fd)


def _try_lock(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise _cannot_lock(path, error) from error
    return True


def _cannot_lock(path: Path, error: OSError) -> HostError:
    # With a link, its author would choose which file klet creates and locks.
    reason = "it is a symbolic link" if error.errno == errno.ELOOP else (error.strerror or str(error)).lower()
    return HostError(
        f'failed to run Kubelet: unable to acquire file lock on "{path}": {reason}: give --lock-file the path of a '
        "file that klet may create or write"
    )
