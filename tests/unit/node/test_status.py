"""A node's status, setter by setter."""

import pytest
from msgspec.structs import replace

from klet.api.meta import ObjectMeta
from klet.api.node import (
    ContainerImage,
    Node,
    NodeFeatures,
    NodeSpec,
    NodeStatus,
    NodeSwapStatus,
    NodeSystemInfo,
)
from klet.api.times import Time
from klet.host.addresses import AddressFacts
from klet.host.machine.info import MachineInfo, SystemVersions
from klet.model.images import ImageRecord
from klet.model.unknown import Unknown
from klet.node.runtime_state import RuntimeHandler, RuntimeReport
from klet.node.settings import NodeSettings
from klet.node.status import compose_status, list_images
from klet.node.status_inputs import StatusInputs
from klet.testing.builders import NOW
from klet.version import KUBELET_VERSION

WELL = RuntimeReport(runtime_error=None, network_error=None)
MACHINE = MachineInfo(cpus=2, memory=1 << 30, machine_id="m", system_uuid="u", boot_id="b")
SEEN = StatusInputs(
    now=Time.of(NOW),
    machine=MACHINE,
    versions=SystemVersions("6.1.0", "Debian GNU/Linux 12 (bookworm)"),
    runtime=WELL,
    runtime_version="containerd://1.6.20",
    storage=1 << 40,
)
SETTINGS = NodeSettings(name="n1", has_external_cloud=True, architecture="arm64", port=10350)
NODE = Node(metadata=ObjectMeta(name="n1"))


def composed(seen=SEEN, node=NODE, settings=SETTINGS, **options):
    return compose_status(node, seen, settings, **options)


def with_info(**fields: str) -> Node:
    return Node(metadata=ObjectMeta(name="n1"), status=NodeStatus(node_info=NodeSystemInfo(**fields)))


def test_what_the_machine_and_its_system_are():
    info = composed().node.status.node_info
    assert info == NodeSystemInfo(
        machine_id="m",
        system_uuid="u",
        boot_id="b",
        kernel_version="6.1.0",
        os_image="Debian GNU/Linux 12 (bookworm)",
        container_runtime_version="containerd://1.6.20",
        kubelet_version=KUBELET_VERSION,
        kube_proxy_version="",
        operating_system="linux",
        architecture="arm64",
    )


def test_the_version_of_kube_proxy_is_shown_without_its_gate():
    info = composed(settings=replace(SETTINGS, shows_proxy_version=True)).node.status.node_info
    assert info.kube_proxy_version == KUBELET_VERSION


def test_a_system_that_cannot_be_read_leaves_all_versions():
    node = with_info(kernel_version="5", os_image="o", kubelet_version="v1", kube_proxy_version="p")
    outcome = composed(replace(SEEN, versions=Unknown("error getting version info: no os-release")), node)
    info = outcome.node.status.node_info
    assert (info.kernel_version, info.os_image, info.kubelet_version, info.kube_proxy_version) == ("5", "o", "v1", "p")
    assert (info.boot_id, info.operating_system) == ("b", "linux")
    assert outcome.problems == ("error getting version info: no os-release",)


def test_a_machine_that_cannot_be_read_keeps_its_ids():
    outcome = composed(replace(SEEN, machine=Unknown("no meminfo")), with_info(machine_id="old", boot_id="old"))
    assert outcome.node.status.node_info.machine_id == "old"
    assert outcome.findings[0].decision == "NodeHasSufficientMemory"
    assert outcome.problems == ("no meminfo",)


@pytest.mark.parametrize(
    ("recorded", "messages"),
    [
        pytest.param("", [], id="a new node"),
        pytest.param("b", [], id="the same boot"),
        pytest.param("a", ["Node n1 has been rebooted, boot id: b"], id="another boot"),
    ],
)
def test_a_reboot_is_recorded(recorded, messages):
    outcome = composed(node=with_info(boot_id=recorded))
    assert [finding.message for finding in outcome.findings if finding.decision == "Rebooted"] == messages


def test_swap_is_reported_where_there_is_some():
    swapping = composed(replace(SEEN, machine=replace(MACHINE, swap=4096)))
    assert swapping.node.status.node_info.swap == NodeSwapStatus(capacity=4096)
    assert composed().node.status.node_info.swap is None


def test_addresses_that_cannot_be_found_are_a_problem():
    seen = replace(SEEN, addresses=AddressFacts(default=Unknown("no route")))
    outcome = composed(seen, settings=NodeSettings(name="n1"))
    assert outcome.problems == ("can't get ip address of node n1. error: no route",)
    assert outcome.node.status.addresses == ()
    assert outcome.node.status.conditions[-1].status == "True"


def test_ready_is_the_last_condition():
    types = [each.type for each in composed().node.status.conditions]
    assert types == ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]


def test_the_port_of_the_agent():
    assert composed().node.status.daemon_endpoints.kubelet_endpoint.port == 10350


def test_a_node_without_capacity_is_not_ready():
    outcome = composed(replace(SEEN, storage=None, errors=("runtime",)))
    assert outcome.node.status.conditions[-1].message == (
        "[runtime, missing node capacity for resources: ephemeral-storage]"
    )


def test_images_are_the_largest_with_their_names():
    images = (
        ImageRecord("a", ("a@1",), ("a:1",), 10),
        ImageRecord("b", (), ("b:1",), 30),
        ImageRecord("c", tuple(f"c@{n}" for n in range(4)), ("c:1", "c:2"), 10),
    )
    assert list_images(images, most=2) == (
        ContainerImage(names=("b:1",), size_bytes=30),
        ContainerImage(names=("c@0", "c@1", "c@2", "c@3", "c:1"), size_bytes=10),
    )
    assert len(list_images(images, most=-1)) == 3
    assert list_images(images, most=0) == ()


def test_images_that_cannot_be_listed_are_emptied():
    node = replace(NODE, status=NodeStatus(images=(ContainerImage(names=("old",)),)))
    outcome = composed(replace(SEEN, images=Unknown("error getting image list: down")), node)
    assert outcome.node.status.images == ()
    assert outcome.problems == ("error getting image list: down",)


def test_what_the_runtime_can_do():
    report = RuntimeReport(
        runtime_error=None,
        network_error=None,
        handlers=(RuntimeHandler(name="runc", user_namespaces=True),),
        supplemental_groups_policy=False,
    )
    status = composed(replace(SEEN, runtime=report)).node.status
    (handler,) = status.runtime_handlers
    assert (handler.name, handler.features.user_namespaces, handler.features.recursive_read_only_mounts) == (
        "runc", True, False,
    )  # fmt: skip
    assert status.features == NodeFeatures(supplemental_groups_policy=False)


def test_features_that_the_runtime_does_not_report_are_left():
    node = replace(NODE, status=NodeStatus(features=NodeFeatures(supplemental_groups_policy=True)))
    assert composed(node=node).node.status.features == NodeFeatures(supplemental_groups_policy=True)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(None, ("old",), id="not known yet"),
        pytest.param((), (), id="none"),
        pytest.param(("new",), ("new",), id="some"),
    ],
)
def test_volumes_in_use(seen, expected):
    node = replace(NODE, status=NodeStatus(volumes_in_use=("old",)))
    assert composed(replace(SEEN, volumes_in_use=seen), node).node.status.volumes_in_use == expected


@pytest.mark.parametrize(
    ("was", "unschedulable", "decisions"),
    [
        pytest.param(False, True, ["NodeNotSchedulable"], id="cordoned"),
        pytest.param(True, False, ["NodeSchedulable"], id="uncordoned"),
        pytest.param(True, True, [], id="still cordoned"),
    ],
)
def test_cordons_are_reported(was, unschedulable, decisions):
    node = replace(NODE, spec=NodeSpec(unschedulable=unschedulable))
    found = [finding.decision for finding in composed(node=node, was_unschedulable=was).findings]
    assert [decision for decision in found if "Schedulable" in decision] == decisions


def test_fields_of_others_stay():
    node = replace(NODE, status=NodeStatus(phase="Running", volumes_attached=()), spec=NodeSpec(pod_cidr="10.0.0.0/24"))
    outcome = composed(node=node)
    assert (outcome.node.status.phase, outcome.node.spec) == ("Running", node.spec)
