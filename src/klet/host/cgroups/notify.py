"""The kernel's word when a cgroup's memory crosses a threshold; version 1 only (upstream's memcg notification)."""

import asyncio
import os
from pathlib import Path

from klet.host.errors import CgroupError, FileError
from klet.host.files import write_text


async def memory_crosses(directory: Path, threshold: int) -> None:
    """Return when the usage of a memory cgroup crosses a number of bytes, up or down, or the cgroup is removed.

    What already is above stays unnoticed. Arm it again, with a deadline, as the threshold moves with the page cache.
    """
    loop = asyncio.get_running_loop()
    crossed: asyncio.Future[None] = loop.create_future()
    event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    try:
        _register(directory, event, threshold)
        loop.add_reader(event, _finish, crossed)
        try:
            await crossed
        finally:
            loop.remove_reader(event)
    finally:
        os.close(event)


def _register(directory: Path, event: int, threshold: int) -> None:
    try:
        usage = os.open(directory / "memory.usage_in_bytes", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CgroupError(f"cannot watch the memory of cgroup {directory}: {error.strerror}") from error
    try:
        write_text(directory / "cgroup.event_control", f"{event} {usage} {threshold}")
    except FileError as error:
        raise CgroupError(f"cannot watch the memory of cgroup {directory}: {error}") from error
    finally:
        os.close(usage)


def _finish(crossed: "asyncio.Future[None]") -> None:
    if not crossed.done():
        crossed.set_result(None)
