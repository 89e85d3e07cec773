"""What a run needs: a private containerd with the suite's images, a control plane, and one node of klet or upstream."""

import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.node import Node
from klet.errors import KletError
from klet.kube.errors import KubeError
from klet.testing.conformance.csi_images import make_csi_images, make_shell_images
from klet.testing.conformance.images import Materials, make_images
from klet.testing.conformance.userland import Userland
from klet.testing.containerd import PrivateContainerd, add_image, connect_ready, run_containerd, why_impossible
from klet.testing.control_plane.cluster import ControlPlane, Roles, run_control_plane
from klet.testing.control_plane.nodes import ClusterNode
from klet.testing.control_plane.processes import LOG_SHOWN, Daemon, DaemonFailed
from klet.testing.leftovers import remove_abandoned

# Short, since the paths of Unix sockets are limited, and fixed, so that the next run finds what a killed one left.
BASE: Final = Path(tempfile.gettempdir()) / "klet-conformance"
KLET: Final = "klet"
UPSTREAM: Final = "upstream"
CONTROLLERS: Final = "*"
READY_LIMIT: Final = timedelta(seconds=60)
_POLL: Final = timedelta(milliseconds=200)
_NODE: Final = "node"


class Unfit(KletError):
    """The suite can not run on this machine; the message says what is missing."""


class Supplies(Struct, frozen=True):
    """What the images are made from."""

    materials: Materials
    userland: Userland
    driver_images: tuple[str, ...] = ()
    """Images of drivers whose programs are here."""
    shell_images: tuple[str, ...] = ()
    """Images of drivers that are deployed and never called, made without their programs."""


class ConformanceCluster(Struct, frozen=True):
    """A cluster of one node that is ready."""

    plane: ControlPlane
    agent: Daemon
    containerd: PrivateContainerd
    kubelet_root: Path


def check_machine() -> None:
    """Check that the suite can run on this machine. Raises Unfit."""
    if reason := why_impossible():
        raise Unfit(reason)


@asynccontextmanager
async def set_stage(
    kubelet: str, supplies: Supplies, *, say: Callable[[str], None], clock: Clock
) -> AsyncIterator[ConformanceCluster]:
    """Start everything; whatever happens, nothing of it is left when the block is left."""
    remove_abandoned(BASE)
    async with AsyncExitStack() as stack:
        say("starting containerd")
        containerd = await stack.enter_async_context(run_containerd(BASE / str(os.getpid()), clock=clock))
        await _import_images(containerd, supplies, say=say, clock=clock)
        say("starting the control plane")
        # In containerd's directory: with that goes everything, also what a killed run left.
        roles = Roles(controllers=CONTROLLERS, scheduler=True)
        plane = await stack.enter_async_context(run_control_plane(containerd.directory / "plane", roles, clock=clock))
        node = ClusterNode(name=_NODE, directory=containerd.directory / "node", plane=plane, containerd=containerd)
        node.prepare()
        stack.callback(node.unmount_all)
        agent = node.upstream() if kubelet == UPSTREAM else node.klet("--klet-leave-kernel-tunables")
        say("starting the node with " + ("upstream's kubelet" if kubelet == UPSTREAM else "klet"))
        await stack.enter_async_context(node.running(agent))
        await _until_ready(plane, agent, clock=clock)
        yield ConformanceCluster(plane=plane, agent=agent, containerd=containerd, kubelet_root=node.root)


async def _import_images(
    containerd: PrivateContainerd, supplies: Supplies, *, say: Callable[[str], None], clock: Clock
) -> None:
    async with connect_ready(containerd, clock=clock) as client:
        drivers = make_csi_images(supplies.driver_images, supplies.userland)
        shells = make_shell_images(supplies.shell_images, supplies.userland)
        for name, data in chain(make_images(supplies.materials, supplies.userland), drivers, shells):
            say(f"importing {name}")
            await add_image(containerd, client, name=name, data=data, clock=clock)


async def _until_ready(plane: ControlPlane, agent: Daemon, *, clock: Clock) -> None:
    give_up = clock.now() + READY_LIMIT
    async with plane.client() as client:
        while True:
            agent.check()
            try:
                node = await client.get(Node, _NODE)
            except KubeError:  # it has not registered yet
                node = None
            if node and any(each.type == "Ready" and each.status == "True" for each in node.status.conditions):
                return
            if clock.now() > give_up:
                seconds = f"{READY_LIMIT.total_seconds():g}"
                raise DaemonFailed(f"the node was not ready after {seconds} s:\n{agent.log[-LOG_SHOWN:]}")
            await clock.sleep(_POLL)
