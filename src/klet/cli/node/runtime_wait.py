"""Waits for a node's containerd; one that came up without its CRI is started once more, and then explained."""

import re
from datetime import timedelta
from typing import Final

from klet.aio.clock import Clock
from klet.cli.node.daemons import CONTAINERD, daemon
from klet.cli.node.node import LocalNode, NodeError, last_lines
from klet.cli.node.processes import stop
from klet.cri.client import CriClient, connect
from klet.cri.errors import Code, CriError
from klet.wire import cri_v1_pb2 as pb

RUNTIME_DEADLINE: Final = timedelta(seconds=60)
CALL_DEADLINE: Final = timedelta(seconds=10)
STOP_GRACE: Final = timedelta(seconds=20)
POLL: Final = timedelta(milliseconds=50)
LOG_END: Final = 1 << 20


async def until_runtime_ready(node: LocalNode, *, clock: Clock) -> str:
    """Wait until containerd answers and its network is ready; returns what it calls itself."""
    began = clock.monotonic()
    was_restarted = False
    log = node.paths.logs / "containerd.log"
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
                if was_restarted:
                    why = (
                        find_plugin_error(_end_of(node)) or f"{log} does not say why; it ends with:\n{last_lines(log)}"
                    )
                    raise NodeError(f"containerd runs without its CRI plugin: {why} (log: {log})") from error
                was_restarted = True
                await _restart(node, clock=clock)
        if clock.monotonic() - began > RUNTIME_DEADLINE.total_seconds():
            raise NodeError(f"containerd is not ready: {problem}; {log} ends with:\n{last_lines(log)}")
        await clock.sleep(POLL)


def find_plugin_error(log: str) -> str | None:
    """Return why containerd could not load its CRI plugin, from the newest such line of its log; None without one."""
    found = _FAILED.findall(log)
    if found:
        return str(found[-1]).replace('\\"', '"')
    return "its configuration disables it" if _SKIPPED.search(log) else None


_CRI_PLUGIN: Final = r"io\.containerd\.(?:grpc\.v1\.cri|cri\.v1\.\w+)"
_FAILED: Final = re.compile(rf'msg="failed to load plugin[^=]*{_CRI_PLUGIN}[^=]*" error="((?:[^"\\]|\\.)*)"')
_SKIPPED: Final = re.compile(rf'msg="skip(?:ping)? loading plugin[^=]*{_CRI_PLUGIN}')


async def _restart(node: LocalNode, *, clock: Clock) -> None:
    """End containerd, so that its supervisor starts it again: what kept the plugin away may be over. Pods live on."""
    process = daemon(node, CONTAINERD)
    if process is not None:
        await stop(process, grace=STOP_GRACE, clock=clock)


def _end_of(node: LocalNode) -> str:
    try:
        with open(node.paths.logs / "containerd.log", "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - LOG_END))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


async def _runtime_problem(cri: CriClient) -> str:
    answer = await cri.status(pb.StatusRequest())
    problems = [f"{c.type} is false: {c.reason} {c.message}" for c in answer.status.conditions if not c.status]
    return "; ".join(problems)
