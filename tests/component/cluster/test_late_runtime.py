"""A node whose container runtime comes late: it is registered as not ready, and runs its pods in the end."""

import asyncio

from klet.cri.errors import Code
from klet.testing.fake_runtime import Fault
from klet.testing.fake_runtime.faults import ANY, Fail


def ready(node):
    return next((each for each in node.status.conditions if each.type == "Ready"), None) if node is not None else None


async def until_ready_is(node, status, *, without="\n"):
    with node.nodes.changes() as changes:
        async with asyncio.timeout(30):
            while (
                (found := ready(node.nodes.get("node"))) is None or found.status != status or without in found.message
            ):
                await changes.get()
    return found


async def test_the_node_is_there_before_its_runtime(node):
    node.machine.met = None
    away = Fail(Code.UNAVAILABLE, "connection error: no such file or directory")
    fault = node.machine.runtime.faults.add(Fault(ANY, away, count=None))
    async with node.run():
        found = await until_ready_is(node, "False", without="CSINode")
        assert found.reason == "KubeletNotReady"
        assert found.message == (
            "[container runtime status check may not have completed yet, "
            "PLEG is not healthy: pleg has yet to be successful, network state unknown]"
        )
        info = node.nodes.get("node").status.node_info
        assert info.container_runtime_version == "containerd://Unknown"
        await node.bind()
        fault.release()
        await until_ready_is(node, "True")
        assert (await node.until_running()).status.container_statuses[0].state.running is not None
