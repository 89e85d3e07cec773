"""The API server that the node is joined to: upstream's where it was built, else klet's embedded one."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from klet.aio.clock import SystemClock
from klet.kube.credentials import Credentials
from klet.kube.errors import Unreachable
from klet.kube.transport import HttpRequest, Transport
from klet.testing.control_plane import programs
from klet.testing.control_plane.cluster import run_control_plane
from klet.testing.control_plane.default_objects import create_default_objects
from klet.testing.control_plane.identities import ADMINS, ControlPlaneIdentities
from klet.testing.control_plane.processes import Daemon
from klet.testing.free_ports import find_free_ports

START_LIMIT = 30.0
_TIMEOUT = timedelta(seconds=5)
_POLL = 0.05


@dataclass(frozen=True, slots=True)
class ApiServer:
    """A running API server, and how to be its client."""

    name: str
    identities: ControlPlaneIdentities
    transport: Transport
    """Of somebody who may do everything."""


@asynccontextmanager
async def run_api_server(directory: Path) -> AsyncIterator[ApiServer]:
    """An API server that is ready, until the block is left."""
    if why := programs.why_impossible():
        async with _run_embedded(directory) as transport_and_identities:
            transport, identities = transport_and_identities
            yield ApiServer(f"klet's embedded API ({why})", identities, transport)
        return
    async with (
        run_control_plane(directory) as plane,
        plane.client() as admin,
        plane.transport() as transport,
    ):
        await create_default_objects(admin, plane.identities.authority.read_text())
        yield ApiServer(f"kube-apiserver {programs.VERSION}", plane.identities, transport)


@asynccontextmanager
async def _run_embedded(directory: Path) -> AsyncIterator[tuple[Transport, ControlPlaneIdentities]]:
    clock = SystemClock()
    (port,) = find_free_ports(1)
    identities = ControlPlaneIdentities(directory=directory / "pki", server=f"https://127.0.0.1:{port}", clock=clock)
    identities.prepare()
    certificate, key = identities.server("api", dns_names=("localhost",), ips=("127.0.0.1",))
    flags = (f"--port={port}", f"--authority={identities.authority}", f"--certificate={certificate}", f"--key={key}")
    command = (sys.executable, "-m", "bench.hostile.embedded", *flags)
    daemon = Daemon(command=command, log=directory / "api.log", clock=clock)
    access = identities.access("admin", ADMINS)
    transport = Transport(access=access, credentials=Credentials(login=access.login, clock=clock))
    daemon.start()
    try:
        await _until_ready(transport, daemon)
        yield transport, identities
    finally:
        await transport.close()
        await daemon.kill()


async def _until_ready(transport: Transport, daemon: Daemon) -> None:
    async with asyncio.timeout(START_LIMIT):
        while True:
            daemon.check()
            try:
                await transport.send(HttpRequest("GET", "/readyz"), timeout=_TIMEOUT)
            except Unreachable:
                await asyncio.sleep(_POLL)
            else:
                return
