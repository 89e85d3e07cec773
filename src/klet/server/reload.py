"""Files that may change under a running agent: watched, and looked at every minute all the same."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Final

from klet.aio.clock import Clock
from klet.host.errors import HostError
from klet.host.inotify import watch_directory

logger = logging.getLogger(__name__)

LOOK_AGAIN: Final = timedelta(minutes=1)


async def follow_files(files: Iterable[Path], look: Callable[[], Awaitable[None]], *, clock: Clock) -> None:
    """Look now, and then whenever one of the files may have changed, until cancelled.

    Their directories are watched, so that replaced files and links count too, as Kubernetes' own volumes have them.
    """
    changed = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for directory in {path.parent for path in files}:
            group.create_task(_watch(directory, changed))
        group.create_task(_tick(changed, clock))
        while True:
            await changed.wait()
            changed.clear()
            await look()


async def _watch(directory: Path, changed: asyncio.Event) -> None:
    try:
        async with aclosing(watch_directory(directory)) as changes:
            async for _ in changes:
                changed.set()
    except HostError as error:
        extra = {"directory": str(directory), "error": str(error)}
        logger.warning("Files are looked at once a minute only: they cannot be watched", extra=extra)


async def _tick(changed: asyncio.Event, clock: Clock) -> None:
    while True:
        changed.set()
        await clock.sleep(LOOK_AGAIN)
