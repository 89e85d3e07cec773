"""Waits until a node's containerd serves the CRI and has a network; explains one that runs without its CRI plugin."""

import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.aio.clock import Clock
from klet.cli.node.daemons import CONTAINERD, daemon
from klet.cli.node.node import LocalNode, NodeError
from klet.cli.node.processes import stop
from klet.cri.client import CriClient, connect
from klet.cri.errors import Code, CriError
from klet.wire import cri_v1_pb2 as pb

CALL_DEADLINE: Final = timedelta(seconds=10)
RUNTIME_DEADLINE: Final = timedelta(seconds=60)
STOP_GRACE: Final = timedelta(seconds=20)
POLL: Final = timedelta(milliseconds=50)
LOG_END: Final = 1 << 20
_SHOWN_LINES: Final = 8


class RuntimeLog(Struct, frozen=True):
    """Where containerd logs to, and its newest lines."""

    name: str
    read_end: Callable[[], str]

    def last_lines(self) -> str:
        return "\n".join(f"    {line}" for line in self.read_end().splitlines()[-_SHOWN_LINES:])


def log_file(node: LocalNode) -> RuntimeLog:
    """Return the log of a containerd that the node's supervisor runs."""
    path = node.paths.logs / "containerd.log"
    return RuntimeLog(str(path), partial(_end_of, path))


async def until_runtime_ready(
    node: LocalNode,
    *,
    clock: Clock,
    log: RuntimeLog | None = None,
    restart: Callable[[], Awaitable[None]] | None = None,
) -> str:
    """Wait until containerd answers and its network is ready; return what it calls itself.

    `restart` is for a containerd that somebody starts again when it ends; without it, an error is for who does.
    """
    log = log or log_file(node)
    began = clock.monotonic()
    was_restarted = False
    while True:
        try:
            async with connect(runtime_endpoint=str(node.paths.containerd_socket), timeout=CALL_DEADLINE) as cri:
                problem = await _runtime_problem(cri)
                if not problem:
                    version = await cri.version(pb.VersionRequest())
                    return f"{version.runtime_name} {version.runtime_version}"
        except CriError as error:
            problem = str(error)
            # containerd loads its plugins before it listens: one that is not there now never will be.
            if error.code is Code.UNIMPLEMENTED:
                if restart is None or was_restarted:
                    why = find_plugin_error(log.read_end()) or (
                        f"{log.name} does not say why; it ends with:\n{log.last_lines()}"
                    )
                    raise NodeError(f"containerd runs without its CRI plugin: {why} (log: {log.name})") from error
                was_restarted = True
                await restart()
        if clock.monotonic() - began > RUNTIME_DEADLINE.total_seconds():
            raise NodeError(f"containerd is not ready: {problem}; {log.name} ends with:\n{log.last_lines()}")
        await clock.sleep(POLL)


async def restart_supervised(node: LocalNode, *, clock: Clock) -> None:
    """End containerd, so that its supervisor starts it again: what kept the plugin away may be over. Pods live on."""
    process = daemon(node, CONTAINERD)
    if process is not None:
        await stop(process, grace=STOP_GRACE, clock=clock)


def find_plugin_error(log: str) -> str | None:
    """Return why containerd could not load its CRI plugin, from the newest such line of its log; None without one."""
    found = _FAILED.findall(log)
    if found:
        return str(found[-1]).replace('\\"', '"')
    return "its configuration disables it" if _SKIPPED.search(log) else None


_CRI_PLUGIN: Final = r"io\.containerd\.(?:grpc\.v1\.cri|cri\.v1\.\w+)"
_FAILED: Final = re.compile(rf'msg="failed to load plugin[^=]*{_CRI_PLUGIN}[^=]*" error="((?:[^"\\]|\\.)*)"')
_SKIPPED: Final = re.compile(rf'msg="skip(?:ping)? loading plugin[^=]*{_CRI_PLUGIN}')


def _end_of(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - LOG_END))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


async def _runtime_problem(cri: CriClient) -> str:
    answer = await cri.status(pb.StatusRequest())
    problems = [f"{c.type} is false: {c.reason} {c.message}" for c in answer.status.conditions if not c.status]
    return "; ".join(problems)
