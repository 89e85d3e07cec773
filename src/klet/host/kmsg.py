"""The kernel's messages, and the out-of-memory kills among them (upstream's OOM parser)."""

import asyncio
import errno
import logging
import os
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from msgspec import Struct

from klet.host.errors import HostError, MalformedFile, file_error

logger = logging.getLogger(__name__)

KMSG = Path("/dev/kmsg")
# The kernel never makes a record longer than this.
_RECORD = 8192
_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})")
_CONSTRAINT = "oom-kill:constraint="
_KILLED = re.compile(r"[Kk]ill(?:ed)? process (\d{1,10}) \(")
_END_OF_NAME = re.compile(r"\)(?:[, ]|$)")
# Linux before 4.19 has no line with the constraint, but this one.
_LEGACY = "Task in "
_LIMIT = " killed as a result of limit of "
_TASKS = "Tasks in "
_GROUP = " are going to be killed due to memory.oom.group set"
_USAGE = "memory: usage "
_UID = re.compile(r"\bUID:(\d{1,10})\b")
_DIGITS = 19
_AT_ONCE = 64
"""How many messages are read before others get their turn: a flood of them must not hold up the agent."""


class KernelLogRefused(HostError):
    """The kernel's log cannot be read here."""


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
    """The cgroup whose limit was reached; `/` when the machine was out of memory, empty if that is not known."""
    process_memcg: str
    """The cgroup of the process; empty if the kernel did not print it."""
    constraint: str = ""
    """`CONSTRAINT_MEMCG`, `CONSTRAINT_NONE`…; empty if the kernel did not print it."""
    uid: int | None = None
    limit: int | None = None
    """Of the cgroup whose limit was reached, in bytes."""
    since_boot: timedelta

    @property
    def is_system(self) -> bool:
        return self.memcg == "/"


class _Report(Struct):
    """What the kernel has printed of a kill so far."""

    constraint: str = ""
    memcg: str = ""
    process_memcg: str = ""
    pid: int | None = None
    """The victim; None if the lines so far do not name it."""
    uid: int | None = None
    limit: int | None = None
    group: str = ""
    """The cgroup of which all processes are killed."""


class OomParser:
    """Puts the lines of one kill together. Fed with every message in order.

    In a series of kills the kernel leaves out all lines but the last, so the cgroup is only taken for the victim that
    the lines before it name, and for those that die with it (`memory.oom.group`).
    """

    def __init__(self) -> None:
        self._report = _Report()

    def feed(self, message: KernelMessage) -> OomKill | None:
        text = message.text
        if not message.is_from_kernel:
            return None
        if "invoked oom-killer:" in text:
            self._report = _Report()
        elif text.startswith(_USAGE):
            self._report.limit = _find_limit(text)
        elif (found := _find_cgroups(text)) is not None:
            found.limit = self._report.limit
            self._report = found
        elif text.startswith(_TASKS) and text.endswith(_GROUP):
            self._report.group = text[len(_TASKS) : -len(_GROUP)]
        elif (begin := _KILLED.search(text)) and (end := _END_OF_NAME.search(text, begin.end())):
            return self._kill(message, begin, end)
        return None

    def _kill(self, message: KernelMessage, begin: re.Match[str], end: re.Match[str]) -> OomKill | None:
        why, report = message.text[: begin.start()], self._report
        if "ut of memory" not in why:
            return None
        pid = int(begin[1])
        is_victim, is_member = report.pid in (None, pid), report.group != ""
        uid = _UID.search(message.text, end.end())
        known = report if is_victim or is_member else _Report()
        return OomKill(
            pid=pid,
            process=message.text[begin.end() : end.start()],
            memcg=known.memcg or ("" if "cgroup" in why else "/"),
            process_memcg=known.process_memcg if is_victim else known.group,
            constraint=known.constraint,
            uid=int(uid[1]) if uid is not None else known.uid if is_victim else None,
            limit=known.limit,
            since_boot=message.since_boot,
        )


def _find_cgroups(text: str) -> _Report | None:
    """Read the line that names the cgroups. Backwards: a path may look like more fields."""
    if text.startswith(_LEGACY):
        process, found, limited = text.removeprefix(_LEGACY).rpartition(_LIMIT)
        return _Report(memcg=limited, process_memcg=process) if found else None
    rest, is_last, uid = text.partition(_CONSTRAINT)[2].rpartition(",uid=")
    rest, _, pid = rest.rpartition(",pid=")
    rest, _, _ = rest.rpartition(",task=")
    rest, has_task, process = rest.rpartition("task_memcg=")
    if not (is_last and has_task and _is_number(pid) and _is_number(uid)):
        return None
    return _Report(
        constraint=rest.partition(",")[0],
        memcg=rest.partition("oom_memcg=")[2].removesuffix(",") or "/",
        process_memcg=process,
        pid=int(pid),
        uid=int(uid),
    )


def _find_limit(text: str) -> int | None:
    """Read `memory: usage 65536kB, limit 65536kB, failcnt 12`."""
    limit = text.partition(", limit ")[2].partition("kB")[0]
    return int(limit) << 10 if _is_number(limit) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS


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


class KernelLog:
    """The kernel's messages, from the moment it was opened. Close it in the end."""

    def __init__(self, *, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: Path = KMSG) -> "KernelLog":
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise file_error("open", path, error) from error
        with suppress(OSError):  # a pipe, as tests have it, has no past
            os.lseek(descriptor, 0, os.SEEK_END)
        return cls(path=path, descriptor=descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    async def messages(self) -> AsyncGenerator[KernelMessage, None]:
        """Yield the messages as they come, without end. One that cannot be read is left out."""
        while True:
            # Waited for even while there is more to read: so a round of the loop passes.
            await _readable(self._descriptor)
            for record in self._read_some():
                try:
                    message = parse_record(record)
                except MalformedFile as error:
                    logger.debug("Kernel message left out", extra={"error": str(error)})
                    continue
                yield message

    def _read_some(self) -> Iterator[str]:
        for _ in range(_AT_ONCE):
            record = _read_record(self._descriptor, self._path)
            if record is None:
                return
            if record:
                yield record


def _read_record(descriptor: int, path: Path) -> str | None:
    """Return one record; None if there is none yet, empty if some were overwritten before they were read."""
    try:
        return os.read(descriptor, _RECORD).decode("utf-8", errors="replace") or None
    except BlockingIOError:
        return None
    except BrokenPipeError:
        logger.debug("Kernel messages were overwritten before they were read", extra={"file": str(path)})
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
