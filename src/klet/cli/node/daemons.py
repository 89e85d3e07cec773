"""Starting and stopping a node's daemons through its supervisor."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta

from klet.aio.clock import Clock
from klet.cli.node.node import Node, NodeError, last_lines
from klet.cli.node.packages import SYSTEM_PATH
from klet.cli.node.processes import ProcessIdentity, read_pid_file, send_signal, stop
from klet.cli.node.services import Service, write_services
from klet.cli.node.supervisor import OWN_NAME

CONTAINERD = "containerd"
AGENT = "agent"

START_DEADLINE = timedelta(seconds=10)
STOP_GRACE = timedelta(seconds=60)
"""More than the supervisor grants its daemons, one after the other."""
POLL = timedelta(milliseconds=20)


def containerd_service(node: Node, *, program: str, revision: str) -> Service:
    return Service(
        name=CONTAINERD,
        argv=(program, "--config", str(node.paths.containerd_configuration)),
        log=str(node.paths.logs / "containerd.log"),
        revision=revision,
    )


def agent_service(node: Node, *, revision: str) -> Service:
    return Service(
        name=AGENT,
        argv=(
            *(sys.executable, "-P", "-m", "klet", "run"),
            f"--config={node.paths.kubelet_configuration}",
            f"--root-dir={node.paths.kubelet_root}",
            f"--klet-socket={node.paths.agent_socket}",
        ),
        log=str(node.paths.logs / "agent.log"),
        revision=revision,
    )


def daemon(node: Node, name: str) -> ProcessIdentity | None:
    """The daemon's process, if it lives."""
    return read_pid_file(node.paths.pids / name)


async def run_services(node: Node, services: Sequence[Service], *, clock: Clock) -> None:
    """Make the supervisor run exactly these daemons, starting it first if it does not live."""
    write_services(node.paths.services, services)
    supervisor = daemon(node, OWN_NAME)
    if supervisor is not None:
        send_signal(supervisor, signal.SIGHUP)
        return
    log = node.paths.logs / "supervisor.log"
    child = _start_supervisor(node)
    began = clock.monotonic()
    while daemon(node, OWN_NAME) is None:
        if child.poll() is not None or clock.monotonic() - began > START_DEADLINE.total_seconds():
            raise NodeError(f"the supervisor did not start; {log} ends with:\n{last_lines(log)}")
        await clock.sleep(POLL)


async def stop_daemon(node: Node, name: str, *, clock: Clock) -> None:
    """End a daemon that no supervisor looks after."""
    process = daemon(node, name)
    if process is not None:
        await stop(process, grace=STOP_GRACE, clock=clock)


def _start_supervisor(node: Node) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PATH": f"{SYSTEM_PATH}:{os.environ.get('PATH', '')}"}
    with open(node.paths.logs / "supervisor.log", "ab") as output:
        return subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "klet.cli.node.supervisor"),
                *(str(node.paths.services), str(node.paths.pids)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=environment,
            start_new_session=True,
        )
