"""The wired agent as a node of a cluster: pods bound to it run, their statuses go back, and deleted ones are let go."""

import asyncio

import pytest

from klet.api.node import Node
from klet.api.pod import Pod
from klet.kube.errors import NotFound


async def test_a_pod_of_the_api_runs_and_is_let_go_when_it_is_deleted(cluster, node):
    async with node.run():
        await node.bind()
        running = await node.until_running()
        assert running.status.container_statuses[0].state.running is not None
        assert running.status.pod_ip
        await cluster.client.delete(Pod, "p", "default", grace=1)
        await node.until(lambda pod: pod is None)
        with pytest.raises(NotFound):
            await cluster.client.get(Pod, "p", "default")


async def test_a_new_agent_goes_on_where_the_old_one_was(node):
    async with node.run():
        await node.bind()
        before = await node.until_running()
    async with node.run():
        await node.bind("q")
        await node.until_running("q")
        after = node.pods.get("p", "default")
        assert after.status == before.status


async def test_the_node_itself_is_reported(cluster, node):
    """By the same wiring: the Node becomes ready, with the addresses of the machine."""
    async with node.run():
        with node.nodes.changes() as changes:
            async with asyncio.timeout(30):
                while not is_ready(found := node.nodes.get("node")):
                    await changes.get()
    assert [each.address for each in found.status.addresses if each.type == "InternalIP"] == ["192.0.2.10"]
    assert (await cluster.client.get(Node, "node")).status.node_info.boot_id == "boot-1"


def is_ready(node: Node | None) -> bool:
    return node is not None and any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
