"""A network plugin whose files arrive long after the agent, as those of a DaemonSet do."""

import os
from datetime import timedelta

import pytest
import pytest_asyncio

from klet.api.node import Node
from klet.cri.client import connect
from klet.testing.containerd import REQUEST_TIMEOUT, PrivateContainerd, run_containerd
from klet.wire import cri_v1_pb2 as cri

NETWORK_READY = "NetworkReady"
PERIOD = "30m"
"""So long that no periodic report can be what turns the node ready."""


class LateNetwork:
    """The network configuration of a containerd, which can be taken away and put back."""

    def __init__(self, containerd: PrivateContainerd) -> None:
        self._directory = containerd.settings.cni_conf_dir
        self._apart = containerd.directory / "late-net.d"
        self._endpoint = containerd.endpoint

    def take_away(self) -> None:
        self._apart.mkdir()
        for path in sorted(self._directory.iterdir()):
            path.rename(self._apart / path.name)

    def arrive(self) -> None:
        """Write the files as an installer does: beside the name first, then into place."""
        for path in sorted(self._apart.iterdir()):
            draft = self._directory / f".{path.name}.tmp"
            draft.write_bytes(path.read_bytes())
            draft.rename(self._directory / path.name)

    async def is_ready(self) -> bool:
        async with connect(runtime_endpoint=self._endpoint, timeout=REQUEST_TIMEOUT) as runtime:
            answer = await runtime.status(cri.StatusRequest())
        return any(each.type == NETWORK_READY and each.status for each in answer.status.conditions)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def containerd(containerd):
    """A containerd of this module's own, because the others need their network."""
    async with run_containerd(containerd.directory.with_name(f"{os.getpid()}-late-network")) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def network(containerd):
    return LateNetwork(containerd)


def get_ready_condition(node: Node):
    return next((each for each in node.status.conditions if each.type == "Ready"), None)


def is_ready(node: Node) -> bool:
    condition = get_ready_condition(node)
    return condition is not None and condition.status == "True"


def waits_for_network(node: Node) -> bool:
    condition = get_ready_condition(node)
    return condition is not None and "NetworkReady=false" in condition.message


async def test_the_node_is_ready_at_once_and_its_pods_start(api, node, network, manifest):
    network.take_away()
    assert not await api.until(network.is_ready, lambda found: not found)
    agent = node.klet(
        "--klet-leave-kernel-tunables", nodeStatusUpdateFrequency=PERIOD, nodeStatusReportFrequency=PERIOD
    )
    async with node.running(agent):
        waiting = await api.until_node(node.name, waits_for_network, what="waits for its network")
        assert (get_ready_condition(waiting).status, get_ready_condition(waiting).reason) == (
            "False",
            "KubeletNotReady",
        )
        await api.create(manifest("early"), node=node.name)
        await api.create(manifest("on-the-host", spec={"hostNetwork": True}), node=node.name)
        assert "network is not ready" in (await api.until_event("NetworkNotReady", about="early")).message
        await api.until_pod("on-the-host", lambda pod: pod.status.phase == "Running", what="Running without a network")

        network.arrive()
        assert await api.until(network.is_ready, bool)
        reported = api.plane.clock.now()
        ready = await api.until_node(node.name, is_ready, what="Ready")
        # The runtime is asked every second while something is missing; the API server writes whole seconds.
        assert get_ready_condition(ready).last_transition_time - reported < timedelta(seconds=5)
        await api.until_pod("early", lambda pod: pod.status.phase == "Running", what="Running")
