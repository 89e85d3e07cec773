"""klet's own network on a real containerd that has none."""

import asyncio
from datetime import timedelta
from ipaddress import ip_address

import pytest

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.cri.client import connect
from klet.node.bridge_network import BridgeNames, BridgeNetwork
from klet.node.runtime_state import judge_status
from klet.testing.containerd import REQUEST_TIMEOUT, remove_pods
from klet.testing.cri_configs import build_sandbox_config
from klet.wire import cri_v1_pb2 as cri

PAUSE = timedelta(milliseconds=100)

pytestmark = [pytest.mark.root, pytest.mark.containerd]


async def until_network(client, *, is_ready: bool) -> None:
    clock = SystemClock()
    async with asyncio.timeout(30):
        while (judge_status(await client.status(cri.StatusRequest())).network_error is None) is not is_ready:
            await clock.sleep(PAUSE)


async def test_pods_have_addresses_of_the_nodes_cidr(own_containerd):
    async with (
        own_containerd("bridge") as daemon,
        connect(runtime_endpoint=daemon.endpoint, timeout=REQUEST_TIMEOUT) as client,
    ):
        (daemon.settings.cni_conf_dir / "10-klet.conflist").unlink()
        await until_network(client, is_ready=False)
        threads = Threads(limit=1)
        names = BridgeNames(network=daemon.bridge, bridge=daemon.bridge, leases=str(daemon.directory / "leases"))
        try:
            await BridgeNetwork(runtime=client, names=names, threads=threads).use((str(daemon.subnet),))
        finally:
            threads.close()
        await until_network(client, is_ready=True)
        try:
            config = build_sandbox_config(
                name="bridged", log_directory=daemon.directory / "logs", cgroup_parent=daemon.cgroup_parent
            )
            made = await client.run_pod_sandbox(cri.RunPodSandboxRequest(config=config))
            answer = await client.pod_sandbox_status(cri.PodSandboxStatusRequest(pod_sandbox_id=made.pod_sandbox_id))
            assert ip_address(answer.status.network.ip) in daemon.subnet
        finally:
            await remove_pods(client, clock=SystemClock())
