"""One node for both agents: a private containerd at the path where cAdvisor looks for one, a control plane, the pods.

cAdvisor knows containerd at one path only, so everything here runs in a mount namespace of its own, in which that path
leads to the private containerd. The pods stay while one agent follows the other.
"""

import os
import ssl
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import aiohttp
from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.codec import convert
from klet.api.config import ConfigMap
from klet.api.meta import ObjectMeta
from klet.api.pod import Pod
from klet.errors import KletError
from klet.host.mountinfo import parse_mountinfo
from klet.kube.client import KubeClient
from klet.kube.errors import KubeError, NotFound
from klet.testing.containerd import run_containerd
from klet.testing.control_plane.cluster import ControlPlane, run_control_plane
from klet.testing.control_plane.default_objects import create_default_objects
from klet.testing.control_plane.nodes import ClusterNode
from klet.testing.control_plane.processes import LOG_SHOWN, Daemon
from klet.testing.leftovers import remove_abandoned
from klet.testing.metrics_comparison.recordings import ROUTES, Recording, Scrape
from klet.testing.metrics_comparison.workload import (
    CONFIG_MAP,
    HALF_DONE,
    NAMESPACE,
    make_passing_pod,
    make_static_pod,
    make_workload,
)

KLET: Final = "klet"
UPSTREAM: Final = "upstream"
# Short, since the paths of Unix sockets are limited, and fixed, so that the next run finds what a killed one left.
BASE: Final = Path(tempfile.gettempdir()) / "klet-compare"
DEFAULT_PLACE: Final = Path("/run/containerd")
OUTSIDE_VARIABLE: Final = "KLET_OUTER_MOUNTS"
"""The mount namespace that scripts/compare-metrics was started in."""
NODE: Final = "node"
READY_LIMIT: Final = timedelta(seconds=120)
SETTLE: Final = timedelta(seconds=75)
"""cAdvisor looks at a cgroup every 10 to 20 seconds, and both agents at volumes every one or two minutes."""
_POLL: Final = timedelta(milliseconds=200)
_TIMEOUT: Final = aiohttp.ClientTimeout(60)


class NotComparable(KletError):
    """The comparison can not run, or did not get as far as the measurements."""


class ComparedNode(Struct, frozen=True):
    """The node, without an agent."""

    plane: ControlPlane
    node: ClusterNode
    clock: Clock
    report: Callable[[str], None]

    async def create_pods(self) -> None:
        """Create all pods; the agent that runs first starts them."""
        self.node.write("static", make_static_pod())
        async with self.plane.client() as client:
            await create_default_objects(client, self.plane.identities.authority.read_text())
            await client.create(ConfigMap(metadata=ObjectMeta(name=CONFIG_MAP), data={"key": "value"}), NAMESPACE)
            for manifest in make_workload():
                bound = {**manifest, "spec": {**manifest["spec"], "nodeName": NODE}}
                await client.create(convert(Pod, bound), NAMESPACE)

    async def record(self, agent: str, *, between: timedelta, settle: timedelta = SETTLE) -> Recording:
        """Run one agent, wait until it reports all pods, and scrape all its routes twice."""
        daemon = self.node.upstream() if agent == UPSTREAM else self.node.klet("--klet-leave-kernel-tunables")
        async with self.node.running(daemon):
            self.report(f"{agent}: waiting for the pods")
            await self._until_running(daemon)
            await self._start_and_end_one(daemon)
            self.report(f"{agent}: letting it measure for {settle.total_seconds():g} s")
            interfaces, mounts = [_list_interfaces()], [_list_mounts()]
            await self.clock.sleep(settle)
            interfaces.append(_list_interfaces())
            mounts.append(_list_mounts())
            first = await self._scrape()
            self.report(f"{agent}: scraped once; again in {between.total_seconds():g} s")
            await self.clock.sleep(between)
            second = await self._scrape()
            return Recording(first, second, (*interfaces, _list_interfaces()), (*mounts, _list_mounts()))

    async def _until_running(self, daemon: Daemon) -> None:
        give_up = self.clock.now() + READY_LIMIT
        names = [manifest["metadata"]["name"] for manifest in make_workload()]
        async with self.plane.client() as client:
            while missing := [name for name in names if not await _is_running(client, name)]:
                await self._pause(daemon, give_up, waiting_for=", ".join(missing))

    async def _start_and_end_one(self, daemon: Daemon) -> None:
        """Have the agent start and end a pod: many of its own metrics appear with the first of what they count."""
        manifest = make_passing_pod()
        name = manifest["metadata"]["name"]
        bound = {**manifest, "spec": {**manifest["spec"], "nodeName": NODE}}
        give_up = self.clock.now() + READY_LIMIT
        async with self.plane.client() as client:
            await client.create(convert(Pod, bound), NAMESPACE)
            while not await _is_running(client, name):
                await self._pause(daemon, give_up, waiting_for=name)
            await client.delete(Pod, name, NAMESPACE)
            while await _exists(client, name):
                await self._pause(daemon, give_up, waiting_for=f"the end of {name}")

    async def _pause(self, daemon: Daemon, give_up: datetime, *, waiting_for: str) -> None:
        daemon.check()
        if self.clock.now() > give_up:
            raise NotComparable(f"waited for {waiting_for}\n{daemon.log[-LOG_SHOWN:]}")
        await self.clock.sleep(_POLL)

    async def _scrape(self) -> Scrape:
        certificate, key = self.plane.identities.client("scraper", "system:masters")
        context = ssl.create_default_context()
        context.check_hostname = False  # the certificate is one that the agent has made for itself
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(certificate, key)
        bodies = {}
        async with aiohttp.ClientSession(
            f"https://127.0.0.1:{self.node.port}", connector=aiohttp.TCPConnector(ssl=context), timeout=_TIMEOUT
        ) as session:
            # Counted with each request to /healthz, so that they are there.
            async with session.get("/healthz") as answer:
                await answer.read()
            for route in ROUTES:
                async with session.get(route) as answer:
                    body = await answer.text()
                    if answer.status == 200:
                        bodies[route] = body
                    elif answer.status != 404:
                        raise NotComparable(f"GET {route}: {answer.status} {body[:LOG_SHOWN]}")
        return Scrape(bodies)


@asynccontextmanager
async def set_up(*, clock: Clock, report: Callable[[str], None]) -> AsyncIterator[ComparedNode]:
    """Start everything but the agent; nothing of it is left when the block is left."""
    check_namespace()
    remove_abandoned(BASE)
    async with AsyncExitStack() as stack:
        report("starting containerd and the control plane")
        # The shims put their sockets there too, so it is there before the daemon.
        mount_place(DEFAULT_PLACE)
        containerd = await stack.enter_async_context(run_containerd(BASE / str(os.getpid()), clock=clock))
        (DEFAULT_PLACE / "containerd.sock").symlink_to(containerd.settings.socket)
        plane = await stack.enter_async_context(run_control_plane(containerd.directory / "plane", clock=clock))
        node = ClusterNode(name=NODE, directory=containerd.directory / "node", plane=plane, containerd=containerd)
        node.prepare()
        stack.callback(node.unmount_all)
        yield ComparedNode(plane=plane, node=node, clock=clock, report=report)


def check_namespace(environment: Mapping[str, str] = os.environ) -> None:
    """Refuse the mount namespace of the machine. Raises NotComparable."""
    outside = environment.get(OUTSIDE_VARIABLE)
    if outside is None or outside == str(Path("/proc/self/ns/mnt").readlink()):
        raise NotComparable("this is no mount namespace of its own: start scripts/compare-metrics")


def mount_place(place: Path) -> None:
    """Put an empty directory in place of the machine's, in this namespace alone."""
    place.mkdir(mode=0o711, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0711", "tmpfs", str(place)], check=True)


def _list_interfaces() -> frozenset[str]:
    return frozenset(each.name for each in Path("/sys/class/net").iterdir())


def _list_mounts() -> frozenset[str]:
    """Return where something is mounted on the machine, outside of the namespace of the comparison."""
    return frozenset(each.mount_point for each in parse_mountinfo(Path("/proc/1/mountinfo").read_text()))


async def _exists(client: KubeClient, name: str) -> bool:
    try:
        await client.get(Pod, name, NAMESPACE)
    except NotFound:
        return False
    return True


async def _is_running(client: KubeClient, name: str) -> bool:
    try:
        pod = await client.get(Pod, name, NAMESPACE)
    except KubeError:
        return False
    statuses = pod.status.container_statuses
    ready = [each for each in statuses if each.ready]
    return len(statuses) == len(pod.spec.containers) and len(ready) == len(statuses) - (name == HALF_DONE)
