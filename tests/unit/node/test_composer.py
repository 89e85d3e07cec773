"""A node composed from the existing one."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.meta import ObjectMeta
from klet.api.node import Node, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo
from klet.api.times import Time
from klet.host.machine.info import MachineInfo, SystemVersions
from klet.model.unknown import Unknown
from klet.node.composer import NodeComposer, has_changed
from klet.node.runtime_state import RuntimeReport
from klet.node.settings import NodeSettings
from klet.node.status_inputs import StatusInputs
from klet.testing.builders import NOW

LATER = Time.of(NOW + timedelta(seconds=10))
SEEN = StatusInputs(
    now=Time.of(NOW),
    machine=MachineInfo(cpus=1, memory=1, boot_id="b"),
    versions=SystemVersions("6", "x"),
    runtime=RuntimeReport(runtime_error=None, network_error=None),
    storage=1,
)
SETTINGS = NodeSettings(name="n1", has_external_cloud=True)


class Scripted:
    """Reads the inputs that a test sets, and takes pod CIDRs."""

    def __init__(self):
        self.seen = SEEN
        self.new_cidrs = False
        self.in_use = []

    def report(self, names):
        self.in_use.append(tuple(names))

    async def read(self, _node):
        return self.seen

    async def apply(self, _cidrs):
        return self.new_cidrs


@pytest.fixture
def world() -> Scripted:
    return Scripted()


@pytest.fixture
def composer(world) -> NodeComposer:
    return NodeComposer(inputs=world, cidrs=world, reported_in_use=world.report, settings=SETTINGS)


async def test_the_initial_node_has_a_status(composer):
    draft = await composer.compose_initial()
    assert draft.node.metadata.name == "n1"
    assert draft.node.status.conditions[-1].status == "True"


async def test_a_node_that_is_as_it_was_has_not_changed(composer, world):
    first = (await composer.compose_initial()).node
    world.seen = replace(SEEN, now=LATER)
    draft = await composer.compose(first)
    assert not draft.is_changed
    assert draft.node.status.conditions[-1].last_heartbeat_time == LATER


async def test_new_cidrs_and_wrong_labels_are_changes(composer, world):
    first = (await composer.compose_initial()).node
    unlabelled = replace(first, metadata=ObjectMeta(name="n1"))
    assert (await composer.compose(unlabelled)).is_changed
    world.new_cidrs = True
    assert (await composer.compose(first)).is_changed


async def test_volumes_are_marked_as_reported_once_the_node_holds(composer, world):
    first = (await composer.compose_initial()).node
    world.seen = replace(SEEN, volumes_in_use=("a", "b"))
    draft = await composer.compose(first)
    assert draft.is_changed
    assert world.in_use == []
    composer.settle(draft.node, draft.findings)
    assert world.in_use == [("a", "b")]


async def test_a_reboot_is_recorded_once(composer):
    node = Node(metadata=ObjectMeta(name="n1"), status=NodeStatus(node_info=NodeSystemInfo(boot_id="a")))
    recorded = []
    for _ in range(2):
        draft = await composer.compose(node)
        recorded += [each.decision for each in composer.settle(draft.node, draft.findings)]
    assert recorded.count("Rebooted") == 1


async def test_a_cordon_is_reported_when_it_is_settled(composer):
    cordoned = Node(metadata=ObjectMeta(name="n1"), spec=NodeSpec(unschedulable=True))
    for expected in (1, 1):
        draft = await composer.compose(cordoned)
        assert [each.decision for each in draft.findings].count("NodeNotSchedulable") == expected
    composer.settle(draft.node, draft.findings)
    assert "NodeNotSchedulable" not in [each.decision for each in (await composer.compose(cordoned)).findings]


async def test_a_problem_is_logged_when_it_is_new(composer, world, caplog):
    world.seen = replace(SEEN, versions=Unknown("no os-release"))
    for _ in range(3):
        await composer.compose_initial()
    assert [record.error for record in caplog.records] == ["no os-release"]


A, B = NodeCondition(type="A", status="True"), NodeCondition(type="B", status="True")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param((A,), (replace(A, last_heartbeat_time=LATER),), False, id="a heartbeat"),
        pytest.param((A, B), (B, A), False, id="another order"),
        pytest.param((A,), (replace(A, status="False"),), True, id="another status"),
        pytest.param((A,), (replace(A, message="x"),), True, id="another message"),
        pytest.param((A,), (A, B), True, id="one more"),
    ],
)
def test_conditions_that_change(before, after, expected):
    assert has_changed(NodeStatus(conditions=before), NodeStatus(conditions=after)) is expected


def test_any_other_field_counts():
    assert has_changed(NodeStatus(), NodeStatus(volumes_in_use=("v",)))
