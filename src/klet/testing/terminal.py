"""A program on a terminal of its own, as a person at a keyboard has it: typed input, a screen, a size that changes."""

import asyncio
import fcntl
import os
import re
import shutil
import struct
import termios
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress


class _Screen(asyncio.Protocol):
    """Keeps what the program has shown. A StreamReader would lose it: the end of a terminal is an error."""

    def __init__(self) -> None:
        self.shown = b""
        self.has_ended = False
        self._changed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.shown += data
        self._changed.set()

    def connection_lost(self, _error: Exception | None) -> None:
        self.has_ended = True
        self._changed.set()

    async def until_changed(self) -> None:
        await self._changed.wait()
        self._changed.clear()


class Terminal:
    """The side of a pseudo-terminal that a person sees."""

    def __init__(self, *, descriptor: int, screen: _Screen, process: asyncio.subprocess.Process) -> None:
        self._descriptor = descriptor
        self._screen = screen
        self._process = process
        self._seen = 0

    def resize(self, *, rows: int, columns: int) -> None:
        """Change the size; the kernel notifies the program."""
        set_size(self._descriptor, rows=rows, columns=columns)

    def type(self, text: str) -> None:
        """Type a few characters, with a carriage return for the return key."""
        os.write(self._descriptor, text.encode())

    async def until(self, pattern: str) -> re.Match[bytes]:
        """Wait until the screen shows something new that matches. Raises EOFError with what it showed instead."""
        while (found := re.compile(pattern.encode()).search(self._screen.shown, self._seen)) is None:
            if self._screen.has_ended:
                raise EOFError(f"the program ended before {pattern!r} was seen: {self._screen.shown[self._seen :]!r}")
            await self._screen.until_changed()
        self._seen = found.end()
        return found

    async def ended(self) -> int:
        """Wait for the end of the program; its exit code."""
        while not self._screen.has_ended:
            await self._screen.until_changed()
        return await self._process.wait()


@asynccontextmanager
async def run_on_terminal(command: Sequence[str], *, rows: int = 24, columns: int = 80) -> AsyncIterator[Terminal]:
    """Run a program that has this terminal as its controlling one; it is killed when the block is left."""
    master, slave = os.openpty()
    pipe = os.fdopen(master, "rb", buffering=0)
    try:
        set_size(master, rows=rows, columns=columns)
        # The size of a terminal is announced to the session that it controls.
        process = await asyncio.create_subprocess_exec(
            *(shutil.which("setsid") or "setsid", "--ctty", *command), stdin=slave, stdout=slave, stderr=slave
        )
    except BaseException:
        pipe.close()
        raise
    finally:
        os.close(slave)
    transport, screen = await asyncio.get_running_loop().connect_read_pipe(_Screen, pipe)
    try:
        yield Terminal(descriptor=master, screen=screen, process=process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        transport.close()


def set_size(descriptor: int, *, rows: int, columns: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
