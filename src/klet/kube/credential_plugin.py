"""Runs a credential plugin (client-go's exec authenticator): all of its output, bounded, by a deadline.

Its output comes through pipes of ours, not of asyncio's: those end only when every descendant has closed them, and
children of uvloop hand copies on to theirs. (The ports do not import one another, so this is not `host.processes`.)
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Final

from msgspec import Struct

from klet.kube.access import ExecPlugin
from klet.kube.errors import CredentialPluginError
from klet.kube.metrics import CredentialPluginCall

OUTPUT_LIMIT: Final = 1 << 20
"""How long an answer may be."""
_CHUNK: Final = 1 << 16
_SHOWN: Final = 500
"""How much of a plugin's standard error goes into an error."""
_BY_SIGNAL: Final = -1
"""The exit code of a program that a signal ended, as Go has it."""
_LAST_WORDS: Final = timedelta(seconds=1)
"""How long the output of a plugin that has ended may stay open."""


async def run_plugin(plugin: ExecPlugin, environment: Mapping[str, str], *, timeout: timedelta) -> bytes:
    """Return what a plugin prints; raises CredentialPluginError. Nothing of its process group outlives the call."""
    hint = f" ({plugin.install_hint.strip()})" if plugin.install_hint else ""
    name = f"credential plugin {plugin.command}"
    async with _open_pipe() as output, _open_pipe() as errors:
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.args,
                env={**os.environ, **plugin.env, **environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output.write_end,
                stderr=errors.write_end,
                start_new_session=True,
            )
        except OSError as error:
            raise CredentialPluginError(
                f"{name} not started: {error}{hint}", call=CredentialPluginCall.NOT_FOUND
            ) from error
        finally:
            output.close_write_end()
            errors.close_write_end()
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                answer, stderr = await _collect(process, output.reader, errors.reader)
        except TimeoutError as error:
            message = f"{name}: no answer within {timeout}"
            raise CredentialPluginError(message, call=CredentialPluginCall.EXECUTION_ERROR, code=_BY_SIGNAL) from error
        finally:
            _kill_group(process)
            code = await asyncio.shield(process.wait())
    if len(answer) > OUTPUT_LIMIT:
        message = f"{name}: its answer is longer than {OUTPUT_LIMIT} bytes"
        raise CredentialPluginError(message, call=CredentialPluginCall.EXECUTION_ERROR, code=_BY_SIGNAL)
    if code != 0:
        message = f"{name}: exit code {code}{_shown(stderr)}{hint}"
        raise CredentialPluginError(message, call=CredentialPluginCall.EXECUTION_ERROR, code=max(code, _BY_SIGNAL))
    return answer


async def _collect(
    process: asyncio.subprocess.Process, output: asyncio.StreamReader, errors: asyncio.StreamReader
) -> tuple[bytes, bytes]:
    """Return the answer, cut a little above what is allowed, and the end of standard error."""
    answer, stderr = bytearray(), bytearray()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(_read_all(output, answer))
        listening = group.create_task(_keep_end(errors, stderr))
        ending = group.create_task(process.wait())
        await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
        if len(answer) > OUTPUT_LIMIT:
            _kill_group(process)
        await ending
        # Descendants may still print, or only hold on to the output.
        await asyncio.wait((reading,), timeout=_LAST_WORDS.total_seconds())
        _kill_group(process)
        await asyncio.wait((reading, listening), timeout=_LAST_WORDS.total_seconds())
        reading.cancel()
        listening.cancel()
    return bytes(answer), bytes(stderr)


async def _read_all(stream: asyncio.StreamReader, read: bytearray) -> None:
    while len(read) <= OUTPUT_LIMIT and (chunk := await stream.read(_CHUNK)):
        read += chunk


async def _keep_end(stream: asyncio.StreamReader, end: bytearray) -> None:
    while chunk := await stream.read(_CHUNK):
        end += chunk
        del end[:-_SHOWN]


def _shown(stderr: bytes) -> str:
    text = " ".join(stderr.decode(errors="replace").split())
    return f": {''.join(each if each.isprintable() else '?' for each in text)}" if text else ""


def _kill_group(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


class _Pipe(Struct):
    reader: asyncio.StreamReader
    write_end: int

    def close_write_end(self) -> None:
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1


@asynccontextmanager
async def _open_pipe() -> AsyncIterator[_Pipe]:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    pipe = _Pipe(reader, write_end)
    try:
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
        )
        try:
            yield pipe
        finally:
            transport.close()
    finally:
        pipe.close_write_end()
