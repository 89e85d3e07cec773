"""The logs of the machine's services, read by running systemd's journalctl: no shell, a deadline, output in pieces."""

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Final

from klet.host.errors import ProcessFailed
from klet.host.processes import kill_group

PROGRAM: Final = "journalctl"
DEADLINE: Final = timedelta(seconds=30)
_CHUNK: Final = 64 * 1024
_LONGEST_LIST: Final = 8 << 20
"""Bytes of names of units that are looked at."""


def find_program(name: str, search: str) -> Path | None:
    """Return a program in one of the absolute directories of a PATH. A relative one would depend on where klet runs."""
    for directory in search.split(os.pathsep):
        path = Path(directory, name)
        if directory.startswith("/") and path.is_file() and os.access(path, os.X_OK):
            return path
    return None


class Journalctl:
    """Runs journalctl, if the machine has it."""

    def __init__(self, *, environment: Mapping[str, str]) -> None:
        self._search = environment.get("PATH", os.defpath)

    async def units(self) -> frozenset[str]:
        """Return the units that the journal has lines of; none if it cannot be asked."""
        said = bytearray()
        try:
            async with aclosing(self.read(("--field", "_SYSTEMD_UNIT"))) as pieces:
                async for piece in pieces:
                    said += piece
                    if len(said) > _LONGEST_LIST:
                        break
        except ProcessFailed:
            return frozenset()
        return frozenset(said.decode(errors="replace").splitlines())

    async def read(self, arguments: Sequence[str]) -> AsyncGenerator[bytes, None]:
        """Yield what it prints, errors too. The caller closes the generator, which kills it. Raises ProcessFailed."""
        program = find_program(PROGRAM, self._search)
        if program is None:
            raise ProcessFailed(f"there is no {PROGRAM} on the PATH of the agent", returncode=None)
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={"PATH": self._search, "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0"},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise ProcessFailed(f"cannot start {program}: {error.strerror}", returncode=None) from error
        try:
            assert process.stdout is not None
            while piece := await process.stdout.read(_CHUNK):
                yield piece
            await process.wait()
        finally:
            if process.returncode is None:
                await kill_group(process)
