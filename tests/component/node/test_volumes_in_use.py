"""The node's status names the volumes that a controller attaches, and only then they are set up."""

import asyncio

from klet.api.codec import convert
from klet.api.meta import Status
from klet.api.node import Node
from klet.api.pod import Pod
from klet.embedded.faults import RefuseRequest
from klet.embedded.refusals import RequestRefused
from klet.node.conditions import is_ready

DISK = "kubernetes.io/gce-pd/a"


def pod_with_disk(name="a") -> Pod:
    spec = {
        "containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "volumes": [{"name": "v", "gcePersistentDisk": {"pdName": name}}],
    }
    return convert(Pod, {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec})


def ready(node: Node) -> bool:
    return is_ready(node.status.conditions)


async def raw_node(agent) -> bytes:
    return await agent.client.read("/api/v1/nodes/n1")


async def attach(agent):
    """Be the controller that attaches what the node reports in use."""
    patch = {"status": {"volumesAttached": [{"name": DISK, "devicePath": "/dev/a"}]}}
    await agent.client.patch(Node, "n1", patch=patch, subresource="status")


async def test_a_node_without_such_volumes_does_not_have_the_field(ready_agent):
    async with ready_agent.running(ready_agent.reporter, ready_agent.volumes):
        await ready_agent.until_node(ready)
        await ready_agent.volumes.wait_for_attach_and_mount(pod_with_disk("local-1"))
        await ready_agent.sync.sync("n1")
    assert b"volumesInUse" not in await raw_node(ready_agent)


async def test_a_volume_is_named_before_it_is_set_up_and_until_it_is_gone(ready_agent):
    async with ready_agent.running(ready_agent.reporter, ready_agent.volumes):
        await ready_agent.until_node(ready)
        async with asyncio.TaskGroup() as group:
            group.create_task(ready_agent.volumes.wait_for_attach_and_mount(pod_with_disk()))
            await ready_agent.until_node(lambda node: node.status.volumes_in_use == (DISK,))
            assert ready_agent.disks.ups == []
            await attach(ready_agent)
        assert ready_agent.disks.ups == [("u", "v")]
        await ready_agent.volumes.wait_for_unmount("u")
        await ready_agent.until_node(lambda node: node.status.volumes_in_use == ())
    assert b"volumesInUse" not in await raw_node(ready_agent)


async def test_a_volume_waits_as_long_as_the_status_cannot_be_reported(ready_agent):
    no = RefuseRequest(RequestRefused(Status(kind="Status", code=500, reason="InternalError", message="no")))
    async with ready_agent.running(ready_agent.volumes):
        await ready_agent.registrar.register()
        ready_agent.volumes.process(pod_with_disk())
        ready_agent.api.faults.plan(no, applies=lambda ask: ask.method == "PATCH", times=5)
        await ready_agent.sync.sync("n1")
        assert (await ready_agent.client.get(Node, "n1")).status.volumes_in_use == ()
        assert ready_agent.disks.ups == []
        await ready_agent.sync.sync("n1")
        await attach(ready_agent)
        await ready_agent.disks.came.wait()
    assert ready_agent.disks.ups == [("u", "v")]
