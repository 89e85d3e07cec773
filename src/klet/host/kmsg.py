"""The kernel's messages, and the out-of-memory kills among them (upstream's OOM parser)."""

import asyncio
import errno
import logging
import os
import re
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

from msgspec import Struct

from klet.host.errors import MalformedFile, file_error

logger = logging.getLogger(__name__)

KMSG = Path("/dev/kmsg")
# The kernel never makes a record longer than this.
_RECORD = 8192
_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})")
_CONSTRAINT = "oom-kill:constraint="
_KILLED = re.compile(r"[Kk]ill(?:ed)? process (\d+) \(")
_END_OF_NAME = re.compile(r"\)(?:[, ]|$)")
# Linux before 4.19 has no line with the constraint, but this one.
_LEGACY = "Task in "
_LIMIT = " killed as a result of limit of "


class KernelMessage(Struct, frozen=True, kw_only=True):
    """One record of /dev/kmsg."""

    level: int
    facility: int
    sequence: int
    since_boot: timedelta
    text: str

    @property
    def is_from_kernel(self) -> bool:
        """A process that may write to /dev/kmsg cannot claim to be the kernel."""
        return self.facility == 0


class OomKill(Struct, frozen=True, kw_only=True):
    """A process that the kernel killed for memory."""

    pid: int
    process: str
    memcg: str
    """The cgroup whose limit was reached; `/` when the machine was out of memory."""
    process_memcg: str
    """The cgroup of the process; empty if the kernel did not print it."""
    since_boot: timedelta

    @property
    def is_system(self) -> bool:
        return self.memcg == "/"


class OomParser:
    """Puts the lines of one kill together. Fed with every message in order."""

    def __init__(self) -> None:
        self._memcg = ""
        self._process_memcg = ""

    def feed(self, message: KernelMessage) -> OomKill | None:
        if not message.is_from_kernel:
            return None
        if "invoked oom-killer:" in message.text:
            self._memcg = self._process_memcg = ""
        elif (cgroups := _find_cgroups(message.text)) is not None:
            self._memcg, self._process_memcg = cgroups
        elif (begin := _KILLED.search(message.text)) and (end := _END_OF_NAME.search(message.text, begin.end())):
            why = message.text[: begin.start()]
            if "ut of memory" not in why:
                return None
            return OomKill(
                pid=int(begin[1]),
                process=message.text[begin.end() : end.start()],
                memcg=self._memcg or ("" if "cgroup" in why else "/"),
                process_memcg=self._process_memcg,
                since_boot=message.since_boot,
            )
        return None


def _find_cgroups(text: str) -> tuple[str, str] | None:
    """Return the cgroup at its limit and that of the process. Backwards: a path may look like more fields."""
    if text.startswith(_LEGACY):
        process, found, limited = text.removeprefix(_LEGACY).rpartition(_LIMIT)
        return (limited, process) if found else None
    rest, is_last, uid = text.partition(_CONSTRAINT)[2].rpartition(",uid=")
    rest, _, pid = rest.rpartition(",pid=")
    rest, _, _ = rest.rpartition(",task=")
    rest, has_task, process = rest.rpartition("task_memcg=")
    if not (is_last and has_task and pid.isdigit() and uid.isdigit()):
        return None
    return rest.partition("oom_memcg=")[2].removesuffix(",") or "/", process


def parse_record(record: str) -> KernelMessage:
    """Parse `priority,sequence,microseconds,flags;text`; the lines ` KEY=value` after it are left out."""
    head, semicolon, body = record.partition(";")
    try:
        priority, sequence, microseconds = (int(field) for field in head.split(",")[:3])
    except ValueError:
        raise MalformedFile(f"kernel message {record!r} does not begin with three numbers") from None
    if not semicolon:
        raise MalformedFile(f"kernel message {record!r} has no text")
    text = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), body.partition("\n")[0])
    return KernelMessage(
        level=priority & 7,
        facility=priority >> 3,
        sequence=sequence,
        since_boot=timedelta(microseconds=microseconds),
        text=text,
    )


async def follow_kernel_messages(path: Path = KMSG) -> AsyncGenerator[KernelMessage, None]:
    """Yield the messages that come from now on, without end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise file_error("open", path, error) from error
    try:
        os.lseek(descriptor, 0, os.SEEK_END)
        while True:
            record = _read_record(descriptor, path)
            if record is None:
                await _readable(descriptor)
            elif record:
                yield parse_record(record)
    finally:
        os.close(descriptor)


def _read_record(descriptor: int, path: Path) -> str | None:
    """Return one record; None if there is none yet, empty if some were overwritten before they were read."""
    try:
        return os.read(descriptor, _RECORD).decode("utf-8", errors="replace")
    except BlockingIOError:
        return None
    except BrokenPipeError:
        logger.warning("Kernel messages were lost", extra={"file": str(path)})
        return ""
    except OSError as error:
        if error.errno == errno.EINTR:
            return ""
        raise file_error("read", path, error) from error


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _finish, ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


def _finish(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
