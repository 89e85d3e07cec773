"""The lease of a node, over real HTTP."""

import pytest
from msgspec.structs import replace

from klet.api.coordination import Lease, LeaseSpec
from klet.api.meta import ObjectMeta, Status
from klet.api.node import Node
from klet.embedded.faults import Cut, RefuseRequest
from klet.embedded.refusals import RequestRefused


def refuse(code: int, reason: str) -> RefuseRequest:
    return RefuseRequest(RequestRefused(Status(kind="Status", code=code, reason=reason, message=f"no: {reason}")))


async def put_node(agent) -> Node:
    return await agent.client.create(Node(metadata=ObjectMeta(name="n1")))


async def test_a_lease_is_made_for_its_node(agent):
    node = await put_node(agent)
    await agent.lease.renew()
    lease = await agent.read_lease()
    (owner,) = lease.metadata.owner_references
    assert (owner.api_version, owner.kind, owner.name, owner.uid) == ("v1", "Node", "n1", node.metadata.uid)
    assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("n1", 40)
    assert lease.spec.renew_time is not None
    assert (lease.spec.acquire_time, lease.spec.lease_transitions) == (None, None)


async def test_a_lease_is_renewed_without_being_read(agent):
    await put_node(agent)
    await agent.lease.renew()
    made = await agent.read_lease()
    agent.api.faults.plan(refuse(500, "InternalError"), applies=lambda ask: ask.method == "GET")
    await agent.lease.renew()
    agent.api.faults.clear()
    renewed = await agent.read_lease()
    assert renewed.spec.renew_time > made.spec.renew_time
    assert agent.failures == []


async def test_no_node_no_lease(agent):
    await agent.lease.renew()
    assert (await agent.client.list(Lease, "kube-node-lease")).items == ()


async def test_a_lease_comes_as_soon_as_its_node_does(ready_agent):
    async with ready_agent.running():
        await ready_agent.board.until_known()
        await ready_agent.until_lease()


async def test_a_lease_that_somebody_changed_is_read_again_and_renewed(agent):
    await put_node(agent)
    await agent.lease.renew()
    found = await agent.read_lease()
    labelled = replace(found, metadata=replace(found.metadata, labels={"theirs": "yes"}))
    await agent.client.update(labelled, "n1", "kube-node-lease")
    await agent.lease.renew()
    renewed = await agent.read_lease()
    assert renewed.metadata.labels == {"theirs": "yes"}
    assert renewed.spec.renew_time > found.spec.renew_time
    assert agent.failures == []


async def test_a_lease_of_another_holder_is_renewed_and_keeps_its_holder(agent):
    node = await put_node(agent)
    theirs = Lease(metadata=ObjectMeta(name="n1"), spec=LeaseSpec(holder_identity="other", lease_duration_seconds=9))
    await agent.client.create(theirs, "kube-node-lease")
    await agent.lease.renew()
    lease = await agent.read_lease()
    assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("other", 40)
    assert lease.metadata.owner_references[0].uid == node.metadata.uid


async def test_a_lease_that_was_deleted_is_made_again(agent):
    await put_node(agent)
    await agent.lease.renew()
    await agent.client.delete(Lease, "n1", "kube-node-lease")
    await agent.lease.renew()
    assert (await agent.read_lease()).spec.holder_identity == "n1"
    assert agent.failures == ["heartbeat"] * 4


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Cut(), id="cut connections"),
        pytest.param(refuse(500, "InternalError"), id="a server that fails"),
    ],
)
async def test_a_renewal_gets_through_in_the_end(agent, fault):
    await put_node(agent)
    await agent.lease.renew()
    made = await agent.read_lease()
    agent.api.faults.plan(fault, applies=lambda ask: ask.method == "PUT", times=3)
    await agent.lease.renew()
    assert (await agent.read_lease()).spec.renew_time > made.spec.renew_time


async def test_repeated_failures_make_the_connections_be_doubted(agent):
    await put_node(agent)
    await agent.lease.renew()
    broken = refuse(500, "InternalError")
    agent.api.faults.plan(broken, applies=lambda ask: ask.method == "PUT", times=3)
    await agent.lease.renew()
    assert agent.failures == ["heartbeat"] * 2


async def test_a_lease_is_looked_for_until_the_server_answers(agent):
    await put_node(agent)
    agent.api.faults.plan(refuse(500, "InternalError"), applies=lambda ask: "leases" in ask.path, times=4)
    await agent.lease.renew()
    assert (await agent.read_lease()).spec.lease_duration_seconds == 40


async def test_the_keeper_renews_on_and_on(ready_agent):
    async with ready_agent.running():
        first = (await ready_agent.until_lease()).spec.renew_time
        second = (await ready_agent.until_lease(lambda lease: lease.spec.renew_time > first)).spec.renew_time
        await ready_agent.until_lease(lambda lease: lease.spec.renew_time > second)
