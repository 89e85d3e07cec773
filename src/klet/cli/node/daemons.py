"""Starting and stopping a node's daemons through its supervisor."""

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Protocol

from klet.aio.clock import Clock
from klet.cli.node.node import LocalNode, NodeError, last_lines
from klet.cli.node.packages import SYSTEM_PATH
from klet.cli.node.processes import (
    ProcessIdentity,
    daemon_environment,
    read_pid_file,
    send_signal,
    stop,
    unnoted_daemons,
)
from klet.cli.node.services import NodeService, read_services, write_services
from klet.cli.node.supervisor import BUSY, OWN_NAME

CONTAINERD = "containerd"
AGENT = "agent"

START_DEADLINE = timedelta(seconds=60)
STOP_GRACE = timedelta(seconds=60)
"""More than the supervisor grants its daemons, one after the other."""
POLL = timedelta(milliseconds=20)


def containerd_service(node: LocalNode, *, program: str, revision: str) -> NodeService:
    return NodeService(
        name=CONTAINERD,
        argv=(program, "--config", str(node.paths.containerd_configuration)),
        log=str(node.paths.logs / "containerd.log"),
        revision=revision,
    )


def agent_service(node: LocalNode, *, revision: str) -> NodeService:
    return NodeService(
        name=AGENT,
        argv=(
            *(sys.executable, "-P", "-m", "klet", "run"),
            *agent_flags(node),
        ),
        log=str(node.paths.logs / "agent.log"),
        revision=revision,
    )


def agent_flags(node: LocalNode) -> tuple[str, ...]:
    """Return the flags of the node's `klet run`."""
    return (
        f"--config={node.paths.kubelet_configuration}",
        f"--klet-config={node.paths.klet_configuration}",
        f"--root-dir={node.paths.kubelet_root}",
        f"--klet-socket={node.paths.agent_socket}",
        f"--cert-dir={node.paths.pki}",
    )


class NodeDaemons(Protocol):
    """What runs a node's containerd and agent, as far as `klet down` needs it."""

    async def ensure_runtime(self) -> bool:
        """Start containerd if it was killed under pods; return False if there is nothing to stop pods with."""
        ...

    def agent_lives(self) -> bool: ...

    async def stop_agent(self) -> None: ...

    async def stop_all(self) -> None: ...


class SupervisedDaemons:
    """The daemons of a node whose supervisor `klet up` started."""

    def __init__(self, *, node: LocalNode, clock: Clock) -> None:
        self._node = node
        self._clock = clock

    async def ensure_runtime(self) -> bool:
        if daemon(self._node, CONTAINERD) is None:
            services, has_state = self._services(), self._node.paths.containerd_state.exists()
            if not any(service.name == CONTAINERD for service in services) or not has_state:
                return False
            with suppress(NodeError):
                await run_services(self._node, services, clock=self._clock)
        return True

    def agent_lives(self) -> bool:
        return daemon(self._node, AGENT) is not None

    async def stop_agent(self) -> None:
        if daemon(self._node, OWN_NAME) is not None:
            services = [service for service in self._services() if service.name != AGENT]
            await run_services(self._node, services, clock=self._clock)
            while self.agent_lives() and daemon(self._node, OWN_NAME) is not None:
                await self._clock.sleep(POLL)
        await stop_daemon(self._node, AGENT, clock=self._clock)

    async def stop_all(self) -> None:
        # The supervisor stops its daemons; those that it left behind when it was killed are stopped one by one.
        for name in (OWN_NAME, AGENT, CONTAINERD):
            await stop_daemon(self._node, name, clock=self._clock)

    def _services(self) -> list[NodeService]:
        path = self._node.paths.services
        return list(read_services(path)) if path.exists() else []


def daemon(node: LocalNode, name: str) -> ProcessIdentity | None:
    """Return the daemon's process, if it lives."""
    return read_pid_file(node.paths.pids / name)


async def run_services(node: LocalNode, services: Sequence[NodeService], *, clock: Clock) -> None:
    """Make the supervisor run exactly these daemons, starting it first if it does not live."""
    write_services(node.paths.services, services)
    log = node.paths.logs / "supervisor.log"
    child: subprocess.Popen[bytes] | None = None
    began = clock.monotonic()
    while (supervisor := daemon(node, OWN_NAME)) is None:
        code = None if child is None else child.poll()
        # Busy: another one is just coming, which will show itself, or going, which takes as long as its daemons take.
        if child is None or code == BUSY:
            child = _start_supervisor(node)
        elif code is not None or clock.monotonic() - began > START_DEADLINE.total_seconds():
            raise NodeError(f"the supervisor did not start; {log} ends with:\n{last_lines(log)}")
        await clock.sleep(POLL)
    if child is None or supervisor.pid != child.pid:
        send_signal(supervisor, signal.SIGHUP)


async def stop_daemon(node: LocalNode, name: str, *, clock: Clock) -> None:
    """End a daemon that no supervisor looks after, also one that no pid file names."""
    process = daemon(node, name)
    if process is not None:
        await stop(process, grace=STOP_GRACE, clock=clock)
    for stray in unnoted_daemons(node.paths.pids / name, _commands(node)[name]):
        await stop(stray, grace=STOP_GRACE, clock=clock)


def _commands(node: LocalNode) -> Mapping[str, tuple[str, ...]]:
    return {
        OWN_NAME: _supervisor_command(node),
        AGENT: agent_service(node, revision="").argv,
        CONTAINERD: containerd_service(node, program=CONTAINERD, revision="").argv,
    }


def _supervisor_command(node: LocalNode) -> tuple[str, ...]:
    module = (sys.executable, "-P", "-m", "klet.cli.node.supervisor")
    return (*module, str(node.paths.services), str(node.paths.pids))


def _start_supervisor(node: LocalNode) -> subprocess.Popen[bytes]:
    environment = daemon_environment(node.paths.pids / OWN_NAME)
    environment["PATH"] = f"{SYSTEM_PATH}:{environment.get('PATH', '')}"
    with open(node.paths.logs / "supervisor.log", "ab") as output:
        return subprocess.Popen(
            _supervisor_command(node),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=environment,
            start_new_session=True,
        )
