"""Addresses of pods on nodes with two families: statuses and containers agree on which comes first."""

import asyncio
from ipaddress import ip_address

import pytest

from klet.api.node import Node
from klet.api.pod import Pod
from klet.node.addresses import host_ips
from klet.node.settings import NodeSettings

V4, V6 = ip_address("192.0.2.10"), ip_address("2001:db8::10")
SHOWN = {
    "env": [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"status.{path}"}}}
        for name, path in (("IP", "podIP"), ("IPS", "podIPs"), ("HOST", "hostIP"), ("HOSTS", "hostIPs"))
    ]
}


def texts(addresses):
    return ",".join(each.ip for each in addresses)


@pytest.mark.parametrize(
    ("node_ips", "families"),
    [
        pytest.param((V4, V6), [4, 6], id="IPv4 first"),
        pytest.param((V6, V4), [6, 4], id="IPv6 first"),
        pytest.param((ip_address("::"),), [6, 4], id="only the family is given"),
        pytest.param((), [4, 6], id="nothing is given"),
    ],
)
@pytest.mark.parametrize("host_network", [False, True], ids=["a network of its own", "the host's network"])
async def test_the_primary_family_of_the_node_comes_first_everywhere(node, node_ips, families, host_network):
    node.set_features(dual_stack=True)
    node.machine.machine.addresses = (V6, V4) if families == [6, 4] else (V4, V6)
    node.machine.settings = NodeSettings(name="node", node_ips=node_ips)
    async with node.run():
        await node.bind(container=SHOWN, hostNetwork=host_network)
        status = (await node.until_running()).status
        shown = node.environment()
        assert (shown["IP"], shown["IPS"]) == (status.pod_ip, texts(status.pod_ips))
        assert (shown["HOST"], shown["HOSTS"]) == (status.host_ip, texts(status.host_ips))
        found = [ip_address(each.ip).version for each in status.pod_ips]
        assert found == (families[: len(status.host_ips)] if host_network else families)


async def test_a_node_whose_address_becomes_one_of_the_other_family(node, cluster):
    """A cloud controller has another opinion than the node had."""
    node.machine.settings = NodeSettings(name="node", has_external_cloud=True)
    async with node.run():
        await node.bind()
        before = (await node.until_running()).status.host_ip
        addresses = [{"type": "InternalIP", "address": str(V6)}, {"type": "Hostname", "address": "node"}]
        await cluster.client.patch(Node, "node", patch={"status": {"addresses": addresses}}, subresource="status")
        with node.nodes.changes() as changes:
            async with asyncio.timeout(10):
                while str(V6) not in host_ips(node.nodes.get("node")):
                    await changes.get()
        await cluster.client.patch(Pod, "p", "default", patch={"metadata": {"labels": {"look": "again"}}})
        expected = (
            f"Kubelet detected an IPv4 node IP ({before}), but the cloud provider selected an IPv6 node IP ({V6}); "
            "pass an explicit `--node-ip` to kubelet to fix this."
        )
        assert await node.reported("HostIPsIPFamilyMismatch") == [expected]
