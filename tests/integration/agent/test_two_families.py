"""Pods with addresses of both families, on a real network: the node's family comes first, wherever they are shown."""

import asyncio
import json
from datetime import timedelta
from ipaddress import IPv6Network, ip_address
from pathlib import Path

import pytest

from klet.aio.clock import SystemClock
from klet.cri.client import connect
from klet.host.cni import build_cni_list
from klet.node.runtime_state import judge_status
from klet.testing.containerd import REQUEST_TIMEOUT, remove_pods
from klet.wire import cri_v1_pb2 as cri

DISABLED = Path("/proc/sys/net/ipv6/conf/all/disable_ipv6")
NETWORK = "10-klet.conflist"
PAUSE = timedelta(milliseconds=100)
SHOW = 'echo "$IP $IPS"; trap "exit 0" TERM; while true; do sleep 1000 & wait $!; done'


def is_ipv6_on() -> bool:
    return DISABLED.exists() and DISABLED.read_text().strip() == "0"


async def until_network(client, *, is_ready: bool) -> None:
    async with asyncio.timeout(30):
        while (judge_status(await client.status(cri.StatusRequest())).network_error is None) is not is_ready:
            await SystemClock().sleep(PAUSE)


@pytest.fixture
async def two_families(own_containerd):
    """A containerd whose pods have an address of each family."""
    async with (
        own_containerd("families") as daemon,
        connect(runtime_endpoint=daemon.endpoint, timeout=REQUEST_TIMEOUT) as client,
    ):
        part = int(daemon.subnet.network_address) >> 8 & 0xFFFF
        network = json.loads(
            build_cni_list(
                name=daemon.bridge,
                bridge=daemon.bridge,
                subnets=[daemon.subnet, IPv6Network(f"fd6b:6c65:74:{part:x}::/64")],
                data_dir=str(daemon.directory / "leases"),
                masquerade=False,
            )
        )
        # With a gateway the machine would forward IPv6 from now on, and take no routes of routers any more.
        network["plugins"][0]["isGateway"] = False
        # The runtime shows that it has read the new one by having had none.
        (daemon.settings.cni_conf_dir / NETWORK).unlink()
        await until_network(client, is_ready=False)
        draft = daemon.settings.cni_conf_dir / ".draft"
        draft.write_text(json.dumps(network))
        draft.rename(daemon.settings.cni_conf_dir / NETWORK)
        await until_network(client, is_ready=True)
        yield daemon
        await remove_pods(client, clock=SystemClock())


@pytest.mark.skipif(
    not is_ipv6_on(), reason="no IPv6: sysctl -w net.ipv6.conf.all.disable_ipv6=0, if the kernel has it"
)
async def test_the_primary_family_of_the_node_comes_first(two_families, build_node, manifest):
    node = build_node(two_families)
    environment = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"status.{path}"}}}
        for name, path in (("IP", "podIP"), ("IPS", "podIPs"))
    ]
    for name, given, families in (("six", "::", [6, 4]), ("four", "0.0.0.0", [4, 6])):
        pod = manifest(name, main=SHOW)
        pod["spec"]["containers"][0]["env"] = environment
        node.write(name, pod)
        async with node.run(f"--node-ip={given}") as agent:
            await agent.recorded(name, "Started", "Ready")
            status = (await agent.pod(name)).status
            found = [each.ip for each in status.pod_ips]
            assert [ip_address(each).version for each in found] == families
            assert status.pod_ip == found[0]
            assert await agent.first_line(name, "main") == f"{found[0]} {','.join(found)}\n"
