"""What a machine has, and what pods get of it."""

import pytest

from klet.api.node import Node, NodeStatus
from klet.api.quantity import Format, Quantity
from klet.config.configuration import KubeletConfiguration
from klet.host.machine.info import MachineInfo
from klet.model.unknown import Unknown
from klet.node.capacity import (
    AllocatableResources,
    DeviceResources,
    compute_allocatable,
    compute_capacity,
    find_reservation_problems,
    machine_capacity,
)
from klet.node.settings import NodeSettings, Reservations, cut_reservations

NONE = DeviceResources()
UNRESERVED = Reservations()
SMALL = MachineInfo(cpus=2, memory=1024)
GIB = 1 << 30
MIB = 1 << 20


def amounts(**texts: str) -> dict[str, Quantity]:
    return {name.replace("__", "/").replace("_", "-"): Quantity.parse(text) for name, text in texts.items()}


def texts(resources) -> dict[str, str]:
    return {name: str(amount) for name, amount in resources.items()}


def of(machine, before=None, *, devices=NONE, storage=None, settings=None, reservations=UNRESERVED, left=None):
    settings = settings or NodeSettings(name="n1")
    capacity = compute_capacity(before or {}, machine, storage=storage, devices=devices, settings=settings)
    return capacity, compute_allocatable(left or {}, capacity, devices=devices, reservations=reservations)


def test_the_worked_example():
    config = KubeletConfiguration(
        system_reserved={"memory": "512Mi"},
        kube_reserved={"memory": "256Mi"},
        eviction_hard={"memory.available": "100Mi", "nodefs.available": "10%", "imagefs.available": "15%"},
        enforce_node_allocatable=("pods",),
    )
    machine = MachineInfo(cpus=4, memory=8 * GIB, hugepages={2 * MIB: 512})
    capacity, allocatable = of(machine, storage=100 * GIB, reservations=cut_reservations(config))
    assert capacity["memory"].value() == 8589934592
    assert texts(capacity) == {
        "cpu": "4", "memory": "8Gi", "hugepages-2Mi": "1Gi", "pods": "110", "ephemeral-storage": "100Gi",
    }  # fmt: skip
    assert allocatable["memory"].value() == 6606028800
    # A tenth as a 32-bit float, as upstream reckons with it.
    assert allocatable["ephemeral-storage"].value() == 107374182400 - 10737418400


@pytest.mark.parametrize(
    ("eviction", "cpu", "memory"),
    [
        pytest.param({}, "150m", 157286400, id="no threshold"),
        pytest.param({"memory.available": "100Mi"}, "150m", 262144000, id="an amount"),
        pytest.param({"memory.available": "5%"}, "150m", 694157320, id="a share"),
        pytest.param({"pid.available": "10%", "imagefs.available": "15%"}, "150m", 157286400,
                     id="signals that keep nothing back"),
    ],
)  # fmt: skip
def test_what_is_reserved(eviction, cpu, memory):
    config = KubeletConfiguration(
        kube_reserved={"cpu": "100m", "memory": "100Mi", "pid": "100"},
        system_reserved={"cpu": "50m", "memory": "50Mi"},
        eviction_hard=eviction,
    )
    reservations = cut_reservations(config)
    capacity = amounts(cpu="10", memory="10Gi")
    assert str(reservations.of("cpu", capacity["cpu"])) == cpu
    assert reservations.of("memory", capacity["memory"]).value() == memory
    assert "pid" not in compute_allocatable({}, capacity, devices=NONE, reservations=reservations)


def test_eviction_thresholds_can_be_left_out():
    config = KubeletConfiguration(eviction_hard={"memory.available": "100Mi"}, kube_reserved={"memory": "1Mi"})
    assert cut_reservations(config, ignore_eviction=True) == Reservations(fixed=amounts(memory="1Mi"))


def test_soft_thresholds_keep_nothing_back():
    config = KubeletConfiguration(
        eviction_soft={"memory.available": "1Gi"}, eviction_soft_grace_period={"memory.available": "1m"}
    )
    assert cut_reservations(config) == Reservations()


@pytest.mark.parametrize(
    ("before", "left", "devices", "capacity", "allocatable"),
    [
        pytest.param({}, {}, NONE, {"cpu": "2", "memory": "1Ki", "pods": "110"},
                     {"cpu": "2", "memory": "1Ki", "pods": "110"}, id="nothing is reserved"),
        pytest.param(amounts(hugepages_test="1"), amounts(memory="1023"), NONE, {"hugepages-test": "1"},
                     {"memory": "1023", "hugepages-test": "1"}, id="huge pages are subtracted once, not each time"),
        pytest.param(amounts(hugepages_test="1025"), {}, NONE, {}, {"memory": "0"},
                     id="more huge pages than memory leave nothing"),
        pytest.param(amounts(negative="-1"), {}, NONE, {"negative": "-1"}, {"negative": "0"},
                     id="a negative capacity stays, and nothing is left of it"),
        pytest.param(amounts(example_com__gpu="1"), amounts(example_com__gpu="1"),
                     DeviceResources(removed=("example-com/gpu",)), {"example-com/gpu": "0"},
                     {"example-com/gpu": "0"}, id="a device that went away is still named"),
        pytest.param({}, {}, DeviceResources(capacity=amounts(d__x="3"), allocatable=amounts(d__x="2")),
                     {"d/x": "3"}, {"d/x": "2"}, id="of three devices one is sick"),
        pytest.param(amounts(opaque="7"), {}, NONE, {"opaque": "7"}, {"opaque": "7"},
                     id="what others have put there stays"),
    ],
)  # fmt: skip
def test_small_machines(before, left, devices, capacity, allocatable):
    found, free = of(SMALL, before, left=left, devices=devices)
    assert texts(found).items() >= capacity.items()
    assert texts(free).items() >= allocatable.items()


def test_an_extended_resource_that_is_only_allocatable_goes():
    _, allocatable = of(SMALL, left=amounts(example_com__gone="1", storage="1"))
    assert "example-com/gone" not in allocatable
    assert texts(allocatable)["storage"] == "1"


@pytest.mark.parametrize(
    ("machine", "settings", "pods"),
    [
        pytest.param(SMALL, NodeSettings(name="n", pods_per_core=10), "20", id="pods by core"),
        pytest.param(SMALL, NodeSettings(name="n", pods_per_core=100), "110", id="never more than the most"),
        pytest.param(Unknown("?"), NodeSettings(name="n", pods_per_core=1), "110", id="an unknown number of cores"),
    ],
)
def test_pods(machine, settings, pods):
    capacity, _ = of(machine, settings=settings)
    assert str(capacity["pods"]) == pods


def test_a_machine_that_cannot_be_read():
    before = amounts(cpu="4", memory="8Gi", ephemeral_storage="1Gi", hugepages_2Mi="0")
    capacity, allocatable = of(Unknown("?"), before, storage=5)
    assert texts(capacity) == {
        "cpu": "0", "memory": "0", "pods": "110", "ephemeral-storage": "1Gi", "hugepages-2Mi": "0",
    }  # fmt: skip
    assert texts(allocatable)["ephemeral-storage"] == "1Gi"


def test_storage_that_is_no_resource():
    capacity, _ = of(SMALL, storage=5 * GIB, settings=NodeSettings(name="n", counts_storage=False))
    assert "ephemeral-storage" not in capacity


def test_reservations_beyond_the_capacity():
    reservations = Reservations(fixed=amounts(memory="2Ki", cpu="1"))
    assert list(find_reservation_problems(machine_capacity(SMALL), reservations)) == [
        'Resource "memory" has a reservation of 2Ki but capacity of 1Ki. Expected capacity >= reservation.'
    ]


def test_formats_are_those_that_users_know():
    capacity = machine_capacity(MachineInfo(cpus=2, memory=3 * GIB + 1024, hugepages={GIB: 1}))
    assert texts(capacity) == {"cpu": "2", "memory": "3145729Ki", "hugepages-1Gi": "1Gi"}
    assert capacity["memory"].format is Format.BINARY_SI


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param(None, {"memory": "1Gi"}, id="no object yet, or no API server"),
        pytest.param(Node(), {"memory": "1Gi"}, id="an object that nobody has written a status to"),
        pytest.param(
            Node(status=NodeStatus(allocatable=amounts(memory="2Gi", example_com__gpu="1"))),
            {"memory": "2Gi", "example-com/gpu": "1"},
            id="the object",
        ),
    ],
)
def test_the_object_of_the_node_counts(node, expected):
    known = AllocatableResources(expected=amounts(memory="1Gi"), find_node=lambda: node)
    assert texts(known.allocatable()) == expected
