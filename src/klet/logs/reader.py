"""Reads a container's log to its end, or follows it (upstream's ReadLogs).

Only the current file is read; rotated ones are not, except for those that a follower was reading, or has not come to
yet.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from asyncinotify import Inotify, Mask

from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.logs.file import LogFile, RotationCheck, TailSearch
from klet.logs.render import LogOptions, LogRenderer

logger = logging.getLogger(__name__)

RECHECK: Final = timedelta(seconds=1)
"""How long a follower waits for a change of the file before it looks again."""


async def read_logs(
    path: Path,
    options: LogOptions,
    *,
    is_running: Callable[[], Awaitable[bool]],
    clock: Clock,
    turns: asyncio.Lock | None = None,
) -> AsyncGenerator[bytes, None]:
    """Give out the log in pieces. Close the generator (`contextlib.aclosing`) to stop early.

    `is_running` is asked only when following. A runtime that cannot be reached counts as running: that is for the
    caller's function to say. Readers that share `turns` work one after the other: in each round of the loop one of
    them renders one piece, so that many readers of a log full of tiny lines do not hold up the agent.
    """
    turns = turns or asyncio.Lock()
    renderer = LogRenderer(options)
    with closing(LogFile.open(path)) as file, ExitStack() as watching:
        if options.tail is not None:
            file.seek(await _tail_start(file, options.tail, clock=clock))
        follower: _Follower | None = None
        while not renderer.is_done:
            if chunk := file.read():
                if follower is not None:
                    follower.note_news()
                async with turns:
                    output = renderer.feed(chunk)
                    await clock.sleep(_NO_TIME)
                if output:
                    yield output
                continue
            if not options.follow:
                if output := renderer.finish():
                    yield output
                break
            if follower is None:
                # What changes before the watch stands is seen by reading once more.
                changed = watching.enter_context(_watch(file.directory))
                follower = _Follower(changed=changed, is_running=is_running, clock=clock)
                continue
            turn = file.check_rotation(clock.monotonic())
            if turn.is_new:
                renderer.drop_incomplete()
            if not await follower.wait(turn):
                break
        if renderer.skipped:
            logger.warning("Log lines left out", extra={"path": str(path), "lines": renderer.skipped})


class _Follower:
    """Decides at each end of the file whether there is more to come, and waits for it."""

    def __init__(self, *, changed: asyncio.Event, is_running: Callable[[], Awaitable[bool]], clock: Clock) -> None:
        self._changed = changed
        self._is_running = is_running
        self._clock = clock
        self._is_quiet = True
        self._has_stopped = False

    def note_news(self) -> None:
        """Something was read."""
        self._is_quiet = False

    async def wait(self, turn: RotationCheck) -> bool:
        """Return when reading again makes sense; False when the container stopped and the file was read after that.

        The runtime is asked only when a wait brought nothing new: a busy log shows that its container lives.
        """
        if turn.read_again:
            return True
        if turn.is_held:
            # Not for a change: a busy container writes to the new file all the time.
            await self._clock.sleep(_HELD_RECHECK)
            return True
        if self._has_stopped:
            return False
        was_quiet, self._is_quiet = self._is_quiet, True
        if was_quiet and not await self._is_running():
            self._has_stopped = True
            return True
        await first_of(self._changed.wait(), self._clock.sleep(RECHECK))
        self._changed.clear()
        return True


_NO_TIME: Final = timedelta(0)
_HELD_RECHECK: Final = timedelta(milliseconds=20)
_CHANGES: Final = (
    Mask.MODIFY
    | Mask.CLOSE_WRITE
    | Mask.ATTRIB
    | Mask.CREATE
    | Mask.DELETE
    | Mask.MOVED_FROM
    | Mask.MOVED_TO
    | Mask.DELETE_SELF
)
_EVENTS_AT_ONCE: Final = 64 * 1024


async def _tail_start(file: LogFile, lines: int, *, clock: Clock) -> int:
    search = TailSearch(blocks=file, lines=lines)
    while (start := search.step()) is None:
        await clock.sleep(_NO_TIME)
    return start


@contextmanager
def _watch(directory: Path) -> Iterator[asyncio.Event]:
    """Yield an event that is set when anything in the directory changes.

    Without a watch (the user's limit of inotify instances is easily reached) the re-read each second is left.
    """
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    with ExitStack() as opened:
        try:
            inotify = opened.enter_context(Inotify())
            inotify.add_watch(directory, _CHANGES)
        except OSError as error:
            logger.warning("Log directory not watched", extra={"path": str(directory), "error": str(error)})
        else:

            def drain() -> None:
                # Which file changed does not matter: the reader looks at its own.
                os.read(inotify.fd, _EVENTS_AT_ONCE)
                changed.set()

            loop.add_reader(inotify.fd, drain)
            opened.callback(loop.remove_reader, inotify.fd)
        yield changed
