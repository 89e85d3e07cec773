"""A node registers, is adopted, becomes ready and reports its changes, over real HTTP."""

from datetime import timedelta

import pytest

from klet.api.meta import ObjectMeta, Status
from klet.api.node import Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo
from klet.api.quantity import Quantity
from klet.embedded.faults import Cut, RefuseRequest
from klet.embedded.refusals import RequestRefused
from klet.node.conditions import find_condition, is_ready
from klet.node.runtime_state import RuntimeReport
from klet.node.settings import NodeSettings, ReportTimes
from klet.node.status_sync import StatusOutcome

WELL = RuntimeReport(runtime_error=None, network_error=None)
NO_NETWORK = RuntimeReport(runtime_error=None, network_error="container runtime network not ready: <nil>")


def condition(node: Node, kind: str) -> NodeCondition:
    found = find_condition(node.status.conditions, kind)
    assert found is not None
    return found


def ready(node: Node) -> bool:
    return is_ready(node.status.conditions)


def refuse(code: int, reason: str) -> RefuseRequest:
    return RefuseRequest(RequestRefused(Status(kind="Status", code=code, reason=reason, message=f"no: {reason}")))


async def put_node(agent, **parts) -> Node:
    node = Node(metadata=ObjectMeta(name="n1", **parts.pop("metadata", {})), **parts)
    return await agent.client.create(node)


async def test_a_node_registers_and_is_ready(ready_agent):
    async with ready_agent.running():
        node = await ready_agent.until_node(ready)
    assert node.metadata.labels["kubernetes.io/hostname"] == "n1"
    assert [f"{each.type}={each.address}" for each in node.status.addresses] == [
        "InternalIP=192.0.2.10", "Hostname=n1",
    ]  # fmt: skip
    assert node.status.node_info.container_runtime_version == "containerd://1.6.20"
    assert node.status.capacity["memory"] == Quantity.parse("4Gi")
    assert "NodeRegistered" in ready_agent.decisions()
    assert "NodeHasSufficientMemory" in ready_agent.decisions()
    assert "NodeReady" not in ready_agent.decisions()


async def test_a_node_is_reported_ready_as_soon_as_its_runtime_is(agent):
    async with agent.running(agent.reporter):
        starting = await agent.until_node(lambda node: not ready(node))
        assert condition(starting, "Ready").message == (
            "[container runtime status check may not have completed yet, network state unknown]"
        )
        agent.runtime.note(NO_NETWORK)
        waiting = await agent.until_node(lambda node: "not ready" in condition(node, "Ready").message)
        assert condition(waiting, "Ready").message == "container runtime network not ready: <nil>"
        agent.runtime.note(WELL)
        await agent.until_node(ready)
    assert "NodeReady" in agent.decisions()


async def test_a_node_that_is_there_is_adopted_and_what_others_wrote_is_kept(ready_agent):
    cordoned = NodeSpec(pod_cidr="10.1.0.0/24", pod_cidrs=("10.1.0.0/24",), unschedulable=True)
    theirs = NodeCondition(type="NetworkUnavailable", status="False", reason="RouteCreated")
    await put_node(
        ready_agent,
        metadata={"labels": {"role": "edge", "kubernetes.io/os": "plan9"}, "annotations": {"mine": "yes"}},
        spec=cordoned,
        status=NodeStatus(capacity={"example.com/gpu": Quantity.of(1)}, conditions=(theirs,)),
    )
    async with ready_agent.running():
        node = await ready_agent.until_node(ready)
    assert node.spec == cordoned
    assert node.metadata.labels["role"] == "edge"
    assert node.metadata.labels["kubernetes.io/os"] == "linux"
    assert node.metadata.annotations["mine"] == "yes"
    assert condition(node, "NetworkUnavailable") == theirs
    assert node.status.capacity["example.com/gpu"] == Quantity.of(1)
    assert ready_agent.cri.cidrs.get_nowait() == "10.1.0.0/24"
    assert ready_agent.cri.cidrs.empty()
    assert "NodeAdopted" in ready_agent.decisions()
    assert "NodeNotSchedulable" in ready_agent.decisions()


async def test_fields_that_klet_does_not_know_survive(ready_agent):
    await put_node(ready_agent)
    raw = {"status": {"conditions": [{"type": "Odd", "status": "True", "mood": "fine"}], "weather": "rain"}}
    await ready_agent.client.patch(Node, "n1", patch=raw, subresource="status")
    async with ready_agent.running():
        await ready_agent.until_node(ready)
    body = await ready_agent.client.read("/api/v1/nodes/n1")
    assert b'"weather":"rain"' in body
    assert b'"mood":"fine"' in body


async def test_pressure_comes_and_goes(ready_agent):
    async with ready_agent.running(ready_agent.reporter):
        await ready_agent.until_node(ready)
        ready_agent.pressures.add("DiskPressure")
        ready_agent.reporter.wake()
        node = await ready_agent.until_node(lambda node: condition(node, "DiskPressure").status == "True")
        assert condition(node, "DiskPressure").reason == "KubeletHasDiskPressure"
        ready_agent.pressures.clear()
        ready_agent.reporter.wake()
        await ready_agent.until_node(lambda node: condition(node, "DiskPressure").status == "False")
    pressures = [decision for decision in ready_agent.decisions() if "DiskPressure" in decision]
    assert pressures == ["NodeHasNoDiskPressure", "NodeHasDiskPressure", "NodeHasNoDiskPressure"]


async def test_a_node_stops_being_ready_when_its_network_does(ready_agent):
    async with ready_agent.running(ready_agent.reporter):
        await ready_agent.until_node(ready)
        ready_agent.runtime.note(NO_NETWORK)
        node = await ready_agent.until_node(lambda node: not ready(node))
    assert condition(node, "Ready").message == "container runtime network not ready: <nil>"
    assert condition(node, "Ready").reason == "KubeletNotReady"


async def test_a_condition_that_someone_else_breaks_is_set_right(ready_agent):
    async with ready_agent.running(ready_agent.reporter):
        await ready_agent.until_node(ready)
        broken = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
        await ready_agent.client.patch(Node, "n1", patch=broken, subresource="status")
        await ready_agent.until_node(lambda node: not ready(node))
        await ready_agent.until_node(ready)


async def test_new_pod_cidrs_reach_the_runtime_at_once(make_agent):
    slow = make_agent(times=ReportTimes(update=timedelta(hours=1)))
    slow.runtime.note(WELL)
    async with slow.running(slow.reporter):
        await slow.until_node(ready)
        await slow.client.patch(Node, "n1", patch={"spec": {"podCIDRs": ["10.2.0.0/24", "fd02::/64"]}})
        assert await slow.cri.cidrs.get() == "10.2.0.0/24,fd02::/64"


async def test_a_cordon_is_reported(ready_agent):
    async with ready_agent.running(ready_agent.reporter):
        await ready_agent.until_node(ready)
        for wanted, decision in ((True, "NodeNotSchedulable"), (False, "NodeSchedulable")):
            await ready_agent.client.patch(Node, "n1", patch={"spec": {"unschedulable": wanted}})
            await ready_agent.until_decision(decision)


async def test_a_reboot_is_reported_once(ready_agent):
    await put_node(ready_agent, status=NodeStatus(node_info=NodeSystemInfo(boot_id="boot-0")))
    async with ready_agent.running(ready_agent.reporter):
        await ready_agent.until_node(lambda node: node.status.node_info.boot_id == "boot-1")
        ready_agent.machine.boot_id = "boot-2"
        ready_agent.reporter.wake()
        await ready_agent.until_node(lambda node: node.status.node_info.boot_id == "boot-2")
    assert ready_agent.decisions().count("Rebooted") == 1


async def test_addresses_that_change_replace_the_old_ones(ready_agent):
    old = (NodeAddress(type="InternalIP", address="192.0.2.1"), NodeAddress(type="ExternalIP", address="192.0.2.2"))
    await put_node(ready_agent, status=NodeStatus(addresses=old))
    async with ready_agent.running(ready_agent.reporter):
        node = await ready_agent.until_node(ready)
    assert [each.address for each in node.status.addresses] == ["192.0.2.10", "n1"]


async def test_a_cloud_gives_the_addresses_and_takes_the_taint(make_agent):
    agent = make_agent(NodeSettings(name="n1", has_external_cloud=True, provider_id="cloud://7"))
    agent.runtime.note(WELL)
    async with agent.running(agent.reporter):
        node = await agent.until_node(ready)
        assert [taint.key for taint in node.spec.taints] == ["node.cloudprovider.kubernetes.io/uninitialized"]
        assert node.spec.provider_id == "cloud://7"
        assert [each.type for each in node.status.addresses] == ["Hostname"]
        given = [{"type": "InternalIP", "address": "10.9.9.9"}, {"type": "Hostname", "address": "n1"}]
        await agent.client.patch(Node, "n1", patch={"status": {"addresses": given}}, subresource="status")
        agent.runtime.note(NO_NETWORK)
        node = await agent.until_node(lambda node: not ready(node))
    assert [each.address for each in node.status.addresses if each.type == "InternalIP"] == ["10.9.9.9"]


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        pytest.param(Cut(), 3, id="cut connections"),
        pytest.param(refuse(500, "InternalError"), 2, id="a server that fails"),
        pytest.param(refuse(429, "TooManyRequests"), 2, id="a server that is busy"),
    ],
)
async def test_a_node_registers_in_the_end(ready_agent, fault, times):
    ready_agent.api.faults.plan(fault, applies=lambda ask: ask.method == "POST", times=times)
    async with ready_agent.running(ready_agent.reporter):
        await ready_agent.until_node(ready)


async def test_a_node_that_may_not_make_itself_is_adopted(ready_agent):
    await put_node(ready_agent)
    ready_agent.api.faults.plan(refuse(403, "Forbidden"), applies=lambda ask: ask.method == "POST")
    async with ready_agent.running(ready_agent.reporter):
        await ready_agent.until_node(ready)
    assert "NodeAdopted" in ready_agent.decisions()


async def test_a_failing_patch_is_tried_again_and_then_the_connections_are_doubted(ready_agent):
    await ready_agent.registrar.register()
    ready_agent.pressures.add("PIDPressure")
    broken = refuse(500, "InternalError")
    ready_agent.api.faults.plan(broken, applies=lambda ask: ask.method == "PATCH", times=3)
    assert await ready_agent.sync.sync("n1") is StatusOutcome.POSTED
    assert ready_agent.failures == ["heartbeat"] * 2
    node = await ready_agent.client.get(Node, "n1")
    assert condition(node, "PIDPressure").status == "True"
    assert ready_agent.decisions().count("NodeHasInsufficientPID") == 1


async def test_a_change_whose_answer_is_lost_is_reported_once(ready_agent):
    await ready_agent.registrar.register()
    ready_agent.pressures.add("PIDPressure")
    ready_agent.api.faults.plan(Cut(), applies=lambda ask: ask.method == "PATCH")
    await ready_agent.sync.sync("n1")
    await ready_agent.sync.sync("n1")
    assert ready_agent.decisions().count("NodeHasInsufficientPID") == 1


async def test_a_pass_gives_up_after_five_tries(ready_agent):
    await ready_agent.registrar.register()
    ready_agent.pressures.add("PIDPressure")
    broken = refuse(500, "InternalError")
    ready_agent.api.faults.plan(broken, applies=lambda ask: ask.method == "PATCH", times=5)
    assert await ready_agent.sync.sync("n1") is StatusOutcome.FAILED
    assert ready_agent.failures == ["heartbeat"] * 4
    assert await ready_agent.sync.sync("n1") is StatusOutcome.POSTED


async def test_a_node_that_somebody_deletes_is_not_made_again_by_the_status(ready_agent):
    await ready_agent.registrar.register()
    await ready_agent.client.delete(Node, "n1")
    ready_agent.pressures.add("PIDPressure")
    assert await ready_agent.sync.sync("n1") is StatusOutcome.FAILED
    assert ready_agent.board.node is None


async def test_a_node_that_is_deleted_and_recreated_is_reported_at_once(ready_agent):
    """As upstream: the agent registers once in its life; a node that comes back gets its status."""
    async with ready_agent.running():
        before = await ready_agent.until_node(ready)
        await ready_agent.client.delete(Node, "n1")
        await put_node(ready_agent, metadata={"labels": {"role": "new"}})
        after = await ready_agent.until_node(lambda node: ready(node) and node.metadata.uid != before.metadata.uid)
    assert after.metadata.labels["role"] == "new"
    assert after.metadata.labels["kubernetes.io/os"] == "linux"
    assert after.status.capacity["memory"] == Quantity.parse("4Gi")
    assert ready_agent.decisions().count("NodeRegistered") == 1


async def test_a_node_of_another_provider_is_adopted_with_its_provider(make_agent):
    """The API server forbids to change it, and the Go kubelet does not try."""
    agent = make_agent(NodeSettings(name="n1", provider_id="cloud://mine"))
    agent.runtime.note(WELL)
    await put_node(agent, spec=NodeSpec(provider_id="cloud://theirs"))
    async with agent.running():
        node = await agent.until_node(ready)
    assert node.spec.provider_id == "cloud://theirs"


async def test_labels_and_taints_of_others_stay(ready_agent):
    async with ready_agent.running():
        await ready_agent.until_node(ready)
        theirs = {"metadata": {"labels": {"role": "edge"}}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}
        await ready_agent.client.patch(Node, "n1", patch=theirs)
        ready_agent.pressures.add("PIDPressure")
        ready_agent.reporter.wake()
        node = await ready_agent.until_node(lambda node: condition(node, "PIDPressure").status == "True")
    assert node.metadata.labels["role"] == "edge"
    assert [taint.key for taint in node.spec.taints] == ["k"]


async def test_nothing_new_is_not_sent(ready_agent):
    await ready_agent.registrar.register()
    assert await ready_agent.sync.sync("n1") is StatusOutcome.POSTED
    before = await ready_agent.client.get(Node, "n1")
    assert await ready_agent.sync.sync("n1") is StatusOutcome.UNCHANGED
    assert await ready_agent.client.get(Node, "n1") == before


async def test_a_node_that_others_make_is_waited_for(make_agent):
    agent = make_agent(registers=False)
    agent.runtime.note(WELL)
    async with agent.running():
        await agent.informer.until_synced()
        await put_node(agent)
        await agent.until_node(ready)
    assert "NodeRegistered" not in agent.decisions()


async def test_a_ready_node_does_not_flap_when_the_agent_starts_again(ready_agent, make_agent):
    async with ready_agent.running(ready_agent.reporter):
        await ready_agent.until_node(ready)
    again = make_agent()
    seen = []
    async with again.running(again.reporter):
        with again.informer.changes() as changes:
            await again.until_decision("NodeAdopted")
            again.runtime.note(WELL)
            again.pressures.add("PIDPressure")
            again.reporter.wake()
            while not seen or condition(seen[-1], "PIDPressure").status != "True":
                await changes.get()
                seen.append(again.informer.get("n1"))
    assert all(ready(node) for node in seen)


async def test_labels_are_kept_right(ready_agent):
    async with ready_agent.running(ready_agent.reporter):
        await ready_agent.until_node(ready)
        await ready_agent.client.patch(Node, "n1", patch={"metadata": {"labels": {"kubernetes.io/arch": None}}})
        await ready_agent.until_node(lambda node: "kubernetes.io/arch" not in node.metadata.labels)
        await ready_agent.until_node(lambda node: node.metadata.labels.get("kubernetes.io/arch") == "amd64")


async def test_a_watch_that_lags_does_not_report_changes_twice(ready_agent):
    await ready_agent.registrar.register()
    await ready_agent.until_node(ready)
    ready_agent.pressures.add("PIDPressure")
    # Two passes in a row: the watch has not shown the first patch yet, its answer has.
    assert await ready_agent.sync.sync("n1") is StatusOutcome.POSTED
    assert await ready_agent.sync.sync("n1") is StatusOutcome.UNCHANGED
    assert ready_agent.decisions().count("NodeHasInsufficientPID") == 1
