"""`/debug/pprof/` and `/debug/flags/v`: where the agent spends its time, and how much it logs."""

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, Protocol

import msgspec
from aiohttp import web

from klet.model.foreign_text import shorten

DEFAULT_SECONDS: Final = 30
MOST_SECONDS: Final = 300
_LARGEST_UINT32: Final = 2**32 - 1
_LARGEST_INT32: Final = 2**31 - 1
_DIGITS: Final = re.compile(r"[0-9]+", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_MOST_DIGITS: Final = 20
_LONGEST_SHOWN: Final = 64
_NOSNIFF: Final = {"X-Content-Type-Options": "nosniff"}


class CpuProfiler(Protocol):
    """Records a profile of CPU time."""

    async def record(self, duration: timedelta) -> bytes: ...


class DebugRoutes:
    """Profiles of the process, one at a time, and the verbosity of its log."""

    def __init__(
        self,
        *,
        load_profiler: Callable[[], CpuProfiler],
        set_verbosity: Callable[[int], None],
        command_line: Sequence[str],
    ) -> None:
        self._load_profiler = load_profiler
        self._set_verbosity = set_verbosity
        self._command_line = command_line
        self._is_profiling = False

    async def show_profile(self, request: web.Request) -> web.Response:
        match request.match_info["profile"]:
            case "profile":
                return await self._profile(request)
            case "cmdline":
                return _text(200, "\0".join(self._command_line))
            case "symbol":
                # The profiles have the names of all functions in them: there is nothing to look up.
                return _text(200, "num_symbols: 1\n")
            case _:
                return _refuse(404, "Unknown profile")

    async def change_verbosity(self, request: web.Request) -> web.Response:
        if request.method != "PUT":
            return _plain(406, "unsupported http method")
        text = (await request.read()).decode(errors="replace")
        verbosity = parse_verbosity(text)
        if isinstance(verbosity, str):
            return _plain(400, verbosity)
        self._set_verbosity(verbosity)
        return _plain(200, f"successfully set klog.logging.verbosity to {text}")

    async def _profile(self, request: web.Request) -> web.Response:
        seconds = parse_seconds(request.query.get("seconds", ""))
        if seconds > MOST_SECONDS:
            return _refuse(400, "profile duration exceeds server's WriteTimeout")
        if self._is_profiling:
            return _refuse(500, "Could not enable CPU profiling: cpu profiling already in use")
        self._is_profiling = True
        try:
            body = await self._load_profiler().record(timedelta(seconds=seconds))
        finally:
            self._is_profiling = False
        headers = _NOSNIFF | {
            "Content-Type": "application/octet-stream",
            "Content-Disposition": 'attachment; filename="profile"',
        }
        return web.Response(body=body, headers=headers)


def parse_seconds(text: str) -> int:
    """Return how long to profile: as Go, what is no positive number is the default."""
    seconds = int(text) if _NUMBER.fullmatch(text) else 0
    return seconds if seconds > 0 else DEFAULT_SECONDS


def parse_verbosity(text: str) -> int | str:
    """Return the verbosity that a client sets, or what is wrong with it, in Go's words."""
    shown = msgspec.json.encode(shorten(text, _LONGEST_SHOWN)).decode()
    if not _DIGITS.fullmatch(text):
        return f"strconv.ParseUint: parsing {shown}: invalid syntax"
    number = int(text) if len(text) <= _MOST_DIGITS else _LARGEST_UINT32 + 1
    if number > _LARGEST_UINT32:
        return f"strconv.ParseUint: parsing {shown}: value out of range"
    if number > _LARGEST_INT32:
        return f"failed set klog.logging.verbosity {text}: strconv.ParseInt: parsing {shown}: value out of range"
    return number


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text, headers=_NOSNIFF)


def _plain(status: int, text: str) -> web.Response:
    body = f"{text}\n".encode(errors="replace")
    return web.Response(status=status, body=body, headers=_NOSNIFF | {"Content-Type": "text/plain"})


def _refuse(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers=_NOSNIFF | {"X-Go-Pprof": "1"})
