"""Short child processes with a deadline and bounded output.

The whole process group is killed at the deadline, on an error and on cancellation, and only then: a descendant that has
closed its output survives a command that ended by itself.
"""

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from msgspec import Struct

from klet.host.errors import ProcessFailed, ProcessTimeout

OUTPUT_LIMIT = 1 << 20
_CHUNK = 1 << 16
_MAX_ERROR_OUTPUT = 500


class Completed(Struct, frozen=True, kw_only=True):
    """How a child ended. A negative code is the signal that killed it. Output beyond the limit is dropped."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes
    truncated: bool = False

    def check(self) -> "Completed":
        """Raise ProcessFailed if the exit code is not 0."""
        if self.returncode == 0:
            return self
        said = (self.stderr or self.stdout).decode(errors="replace").strip()[-_MAX_ERROR_OUTPUT:]
        raise ProcessFailed(
            f"{shlex.join(self.argv)} ended with code {self.returncode}: {said}",
            returncode=self.returncode,
            stdout=self.stdout,
            stderr=self.stderr,
        )


async def run_process(
    argv: Sequence[str],
    *,
    timeout: timedelta,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    output_limit: int = OUTPUT_LIMIT,
) -> Completed:
    """Run a command; return when it has exited and every descendant has closed stdout and stderr.

    At the deadline, or when the caller is cancelled, the whole process group is killed.
    """
    process = await _start(argv, env=env, cwd=cwd)
    try:
        async with asyncio.timeout(timeout.total_seconds()), asyncio.TaskGroup() as group:
            group.create_task(_feed(process, stdin))
            stdout = group.create_task(_drain(process.stdout, output_limit))
            stderr = group.create_task(_drain(process.stderr, output_limit))
            await process.wait()
    except BaseException as error:
        await kill_group(process)
        if isinstance(error, TimeoutError):
            raise ProcessTimeout(f"{shlex.join(argv)} was killed: it did not end within {timeout}") from None
        raise
    (out, more_out), (err, more_err) = stdout.result(), stderr.result()
    return Completed(
        argv=tuple(argv),
        returncode=process.returncode if process.returncode is not None else -signal.SIGKILL,
        stdout=out,
        stderr=err,
        truncated=more_out or more_err,
    )


async def _start(argv: Sequence[str], *, env: Mapping[str, str] | None, cwd: Path | None) -> asyncio.subprocess.Process:
    """Start a command in a process group of its own. Who is cancelled meanwhile leaves nothing of the group behind.

    The loop alone would then kill the child, and not what that has started by then.
    """

    async def start() -> asyncio.subprocess.Process | OSError | ValueError:
        try:
            return await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return error

    async with asyncio.TaskGroup() as group:
        starting = group.create_task(start())
        try:
            started = await asyncio.shield(starting)
        except asyncio.CancelledError:
            started = await starting
            if isinstance(started, asyncio.subprocess.Process):
                await kill_group(started)
            raise
    match started:
        case OSError():
            raise ProcessFailed(f"cannot start {shlex.join(argv)}: {started.strerror}", returncode=None) from started
        case ValueError():
            raise started
        case _:
            return started


async def _feed(process: asyncio.subprocess.Process, data: bytes) -> None:
    if process.stdin is None:
        return
    # When the child has exited already, uvloop has closed the pipe to it; then even a write of zero bytes fails.
    if not data or process.stdin.is_closing():
        process.stdin.close()
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()


async def _drain(stream: asyncio.StreamReader | None, limit: int) -> tuple[bytes, bool]:
    """Read to the end, keep the beginning: a child that writes more than the limit must not block on a full pipe."""
    kept = bytearray()
    truncated = False
    while stream is not None and (chunk := await stream.read(_CHUNK)):
        left = limit - len(kept)
        kept += chunk[:left]
        truncated = truncated or len(chunk) > left
    return bytes(kept), truncated


async def kill_group(process: asyncio.subprocess.Process) -> None:
    """Kill the child and its descendants, which may have outlived it, and reap it, even while being cancelled."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await asyncio.shield(process.wait())
