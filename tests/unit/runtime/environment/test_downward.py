"""The downward API: fields of the pod and resources of its containers."""

import pytest
from msgspec.structs import replace

from klet.api.container import ResourceFieldSelector, ResourceRequirements
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.model.allocation import desired_allocation
from klet.runtime.environment.downward import field_value, resource_value
from klet.runtime.errors import StartError
from klet.testing.builders import make_container, make_pod, with_resources

POD = make_pod(name="web", uid="u-1")
POD = replace(
    POD,
    metadata=replace(POD.metadata, labels={"b": 'x"y', "a": "1"}, annotations={"note": "two\nlines", "K/v": "up"}),
    spec=replace(POD.spec, node_name="node-1", service_account_name="robot"),
)


def value_of(path: str) -> str:
    return field_value(POD, path, pod_ips=("10.0.0.1",), node_ips=("192.168.0.1",))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "web"),
        ("metadata.namespace", "default"),
        ("metadata.uid", "u-1"),
        ("metadata.labels", 'a="1"\nb="x\\"y"'),
        ("metadata.annotations", 'K/v="up"\nnote="two\\nlines"'),
        ("metadata.labels['a']", "1"),
        ("metadata.labels['gone']", ""),
        ("metadata.annotations['note']", "two\nlines"),
        ("metadata.annotations['K/v']", "up"),
        ("spec.nodeName", "node-1"),
        ("spec.host", "node-1"),
        ("spec.serviceAccountName", "robot"),
        ("status.hostIP", "192.168.0.1"),
        ("status.hostIPs", "192.168.0.1"),
        ("status.podIP", "10.0.0.1"),
        ("status.podIPs", "10.0.0.1"),
    ],
)
def test_fields_of_the_pod(path, expected):
    assert value_of(path) == expected


@pytest.mark.parametrize(
    ("pod_ips", "first", "every"),
    [
        pytest.param((), "", "", id="no addresses yet"),
        pytest.param(("10.0.0.1",), "10.0.0.1", "10.0.0.1", id="one"),
        pytest.param(("fd00::1", "10.0.0.1"), "fd00::1", "fd00::1,10.0.0.1", id="two, in their order"),
    ],
)
def test_addresses(pod_ips, first, every):
    assert field_value(POD, "status.podIP", pod_ips=pod_ips, node_ips=("192.168.0.1",)) == first
    assert field_value(POD, "status.podIPs", pod_ips=pod_ips, node_ips=("192.168.0.1",)) == every


@pytest.mark.parametrize(
    ("node_ips", "first", "every"),
    [
        pytest.param((), "", "", id="a node without addresses"),
        pytest.param(("192.168.0.1",), "192.168.0.1", "192.168.0.1", id="one"),
        pytest.param(("fd00::9", "192.168.0.1"), "fd00::9", "fd00::9,192.168.0.1", id="one of each family"),
    ],
)
def test_a_pod_on_the_network_of_the_node_has_its_addresses(node_ips, first, every):
    pod = replace(POD, spec=replace(POD.spec, host_network=True))
    for path, expected in (("status.podIP", first), ("status.podIPs", every), ("status.hostIP", first)):
        assert field_value(pod, path, pod_ips=(), node_ips=node_ips) == expected


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        pytest.param("\\", '"\\\\"', id="a backslash"),
        pytest.param("\t\r\a", '"\\t\\r\\a"', id="characters with a letter of their own"),
        pytest.param("\x01\x7f", '"\\x01\\x7f"', id="other control characters"),
        pytest.param("é☃", '"é☃"', id="printable characters stay"),
        pytest.param("\u200b", '"\\u200b"', id="what cannot be printed"),
        pytest.param("\U000e0001", '"\\U000e0001"', id="what cannot be printed, far out"),
    ],
)
def test_maps_are_quoted_as_go_does(text, quoted):
    pod = replace(POD, metadata=replace(POD.metadata, labels={"k": text}))
    assert field_value(pod, "metadata.labels", pod_ips=(), node_ips=()) == f"k={quoted}"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("status.phase", "unsupported fieldPath: status.phase"),
        ("spec.restartPolicy", "unsupported fieldPath: spec.restartPolicy"),
        ("spec.schedulerName", "unsupported fieldPath: spec.schedulerName"),
        ("nonsense", "field label not supported: nonsense"),
        ("metadata.labels['", "field label not supported: metadata.labels['"),
        ("['a']", "field label not supported: ['a']"),
        ("metadata.name['a']", "field label does not support subscript: metadata.name['a']"),
    ],
)
def test_fields_that_are_refused(path, message):
    with pytest.raises(StartError) as caught:
        value_of(path)
    assert (caught.value.reason, caught.value.message) == ("CreateContainerConfigError", message)


@pytest.mark.parametrize("path", ["metadata.labels['a b']", "metadata.annotations['']"])
def test_keys_that_cannot_be(path):
    with pytest.raises(StartError, match="invalid key subscript in ") as caught:
        value_of(path)
    assert caught.value.message.startswith(f"invalid key subscript in {path}: name part must")


NODE = {"cpu": Quantity.parse("4"), "memory": Quantity.parse("8Gi"), "ephemeral-storage": Quantity.parse("100Gi")}
MAIN = with_resources(
    make_container("main"),
    requests={"cpu": "250m", "memory": "16Mi", "hugepages-2Mi": "4Mi"},
    limits={"cpu": "1500m", "memory": "32Mi", "hugepages-2Mi": "4Mi"},
)
FREE = make_container("free")
ZERO = with_resources(make_container("zero"), limits={"cpu": "0"})
SETUP = make_container("setup")


def owner(**limits: str) -> Pod:
    pod = make_pod(MAIN, FREE, ZERO, init=[SETUP])
    if not limits:
        return pod
    given = ResourceRequirements(limits={name: Quantity.parse(amount) for name, amount in limits.items()})
    return replace(pod, spec=replace(pod.spec, resources=given))


def resource(name: str, *, divisor: str | None = None, container: str = "") -> ResourceFieldSelector:
    parsed = Quantity.parse(divisor) if divisor is not None else None
    return ResourceFieldSelector(resource=name, divisor=parsed, container_name=container)


@pytest.mark.parametrize(
    ("container", "wanted", "expected"),
    [
        pytest.param(MAIN, resource("limits.cpu"), "2", id="whole CPUs, rounded up"),
        pytest.param(MAIN, resource("limits.cpu", divisor="1"), "2", id="a divisor of one"),
        pytest.param(MAIN, resource("limits.cpu", divisor="0"), "2", id="a divisor of zero is one"),
        pytest.param(MAIN, resource("limits.cpu", divisor="1m"), "1500", id="thousandths of a CPU"),
        pytest.param(MAIN, resource("requests.cpu", divisor="100m"), "3", id="tenths of a CPU, rounded up"),
        pytest.param(MAIN, resource("limits.memory", divisor="1Mi"), "32", id="memory in mebibytes"),
        pytest.param(MAIN, resource("requests.memory"), "16777216", id="memory in bytes"),
        pytest.param(MAIN, resource("limits.memory", divisor="30Mi"), "2", id="memory rounded up"),
        pytest.param(MAIN, resource("limits.hugepages-2Mi", divisor="1Mi"), "4", id="huge pages"),
        pytest.param(MAIN, resource("requests.hugepages-2Mi"), "4194304", id="requested huge pages"),
        pytest.param(FREE, resource("limits.cpu"), "4", id="a missing limit is what the node has"),
        pytest.param(ZERO, resource("limits.cpu"), "4", id="a limit of zero is a missing one"),
        pytest.param(FREE, resource("limits.memory", divisor="1Gi"), "8", id="missing memory"),
        pytest.param(FREE, resource("limits.ephemeral-storage", divisor="1Gi"), "100", id="missing storage"),
        pytest.param(FREE, resource("limits.hugepages-2Mi"), "0", id="missing huge pages stay missing"),
        pytest.param(FREE, resource("requests.cpu"), "0", id="a missing request is none"),
        pytest.param(FREE, resource("requests.memory"), "0", id="a missing request of memory is none"),
        pytest.param(FREE, resource("limits.cpu", container="main"), "2", id="another container"),
        pytest.param(MAIN, resource("limits.cpu", container="free"), "4", id="another container without a limit"),
        pytest.param(MAIN, resource("limits.cpu", container="setup"), "0", id="a named init container keeps nothing"),
        pytest.param(SETUP, resource("limits.cpu"), "4", id="an init container of itself"),
    ],
)
def test_resources(container, wanted, expected):
    assert resource_value(desired_allocation(owner()), container.name, wanted, allocatable=NODE) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("limits.cpu", "3", id="the pod's CPUs"),
        pytest.param("limits.memory", str(1 << 30), id="the pod's memory"),
        pytest.param("limits.ephemeral-storage", str(100 << 30), id="storage has no limit of the pod"),
    ],
)
def test_limits_of_the_whole_pod_come_before_the_node(name, expected):
    pod = owner(cpu="3", memory="1Gi")
    assert resource_value(desired_allocation(pod), FREE.name, resource(name), allocatable=NODE) == expected


@pytest.mark.parametrize(
    ("wanted", "allocatable", "message"),
    [
        pytest.param(resource("limits.cpu"), None, "failed to find node object, expected a node", id="no node"),
        pytest.param(resource("limits.gpu"), NODE, "unsupported container resource : limits.gpu", id="an odd one"),
        pytest.param(resource("cpu"), NODE, "unsupported container resource : cpu", id="neither of both"),
        pytest.param(resource("limits.cpu", container="x"), NODE, "container x not found", id="an unknown container"),
    ],
)
def test_resources_that_are_refused(wanted, allocatable, message):
    with pytest.raises(StartError) as caught:
        resource_value(desired_allocation(owner()), MAIN.name, wanted, allocatable=allocatable)
    assert caught.value.message == message
