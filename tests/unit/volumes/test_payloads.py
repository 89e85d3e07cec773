import pytest

from klet.api.codec import convert
from klet.api.config import ConfigMap, Secret
from klet.api.container import ResourceFieldSelector
from klet.api.quantity import Quantity
from klet.api.volume import DownwardAPIVolumeSource, KeyToPath
from klet.model.allocation import desired_allocation
from klet.volumes.atomic_writer import FileProjection
from klet.volumes.errors import VolumeSetupError
from klet.volumes.payloads import (
    config_map_payload,
    downward_payload,
    field_text,
    required_mode,
    resource_text,
    secret_payload,
)

ALLOCATABLE = {"cpu": Quantity.parse("3920m"), "memory": Quantity.parse("16Gi")}
CONFIG = ConfigMap(data={"a": "1", "both": "text"}, binary_data={"b": b"\xff", "both": b"bytes"})


def made(*items, found=CONFIG, is_optional=False):
    return config_map_payload(found, items, default_mode=0o644, is_optional=is_optional)


def test_without_items_every_key_is_a_file():
    files = made()
    assert {name: file.data for name, file in files.items()} == {"a": b"1", "b": b"\xff", "both": b"bytes"}
    assert {file.mode for file in files.values()} == {0o644}


def test_items_choose_keys_paths_and_modes():
    files = made(KeyToPath(key="a", path="x/y"), KeyToPath(key="b", path="z", mode=0o400))
    assert files == {"x/y": FileProjection(b"1", 0o644), "z": FileProjection(b"\xff", 0o400)}


def test_a_mode_of_zero_is_a_mode():
    assert made(KeyToPath(key="a", path="x", mode=0))["x"].mode == 0


def test_text_goes_before_bytes_for_a_listed_key():
    assert made(KeyToPath(key="both", path="x"))["x"].data == b"text"


def test_a_missing_key_of_a_config_map():
    with pytest.raises(VolumeSetupError, match=r"^configmap references non-existent config key: q$"):
        made(KeyToPath(key="q", path="x"))
    assert made(KeyToPath(key="q", path="x"), KeyToPath(key="a", path="y"), is_optional=True).keys() == {"y"}


def test_a_missing_key_of_a_secret():
    found, items = Secret(data={"k": b"v"}), [KeyToPath(key="q", path="x")]
    with pytest.raises(VolumeSetupError, match=r"^references non-existent secret key: q$"):
        secret_payload(found, items, default_mode=0o600, is_optional=False)
    assert secret_payload(found, items, default_mode=0o600, is_optional=True) == {}
    assert secret_payload(found, (), default_mode=0o600, is_optional=False) == {"k": FileProjection(b"v", 0o600)}


def test_a_default_mode_there_must_be():
    assert required_mode(0) == 0
    with pytest.raises(VolumeSetupError, match=r"^no defaultMode used, not even the default value for it$"):
        required_mode(None)


@pytest.fixture
def pod(pod_with):
    return pod_with(
        labels={"b": 'q"', "a": "1"},
        containers=[
            {"name": "c", "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"cpu": "1"}}},
            {"name": "free", "resources": {"limits": {"hugepages-2Mi": "4Mi"}}},
        ],
        initContainers=[{"name": "init"}],
    )


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u"),
        ("metadata.labels", 'a="1"\nb="q\\""'),
        ("metadata.annotations", ""),
        ("metadata.labels['a']", "1"),
        ("metadata.labels['missing']", ""),
        ("metadata.annotations['UPPER']", ""),
    ],
)
def test_fields_of_the_pod(pod, path, text):
    assert field_text(pod, path) == text


@pytest.mark.parametrize(
    ("path", "message"),
    [
        pytest.param("spec.nodeName", r"^unsupported fieldPath: spec\.nodeName$", id="only the environment has it"),
        pytest.param("status.podIP", r"^unsupported fieldPath: status\.podIP$", id="what changes by itself"),
        pytest.param(
            "metadata.name['a']",
            r'^fieldPath "metadata\.name\[\'a\'\]" does not support subscript$',
            id="a key of no map",
        ),
        pytest.param("metadata.labels['a b']", r"^invalid key subscript in metadata\.labels\['a b'\]: ", id="no key"),
    ],
)
def test_fields_that_are_refused(pod, path, message):
    with pytest.raises(VolumeSetupError, match=message):
        field_text(pod, path)


def amount(pod, container, resource, divisor=None, allocatable=ALLOCATABLE):
    wanted = ResourceFieldSelector(
        container_name=container, resource=resource, divisor=divisor and Quantity.parse(divisor)
    )
    return resource_text(desired_allocation(pod), wanted, allocatable=allocatable)


@pytest.mark.parametrize(
    ("container", "resource", "divisor", "text"),
    [
        pytest.param("c", "limits.cpu", "1", "2", id="rounded up"),
        pytest.param("c", "limits.cpu", "1m", "1500", id="thousandths"),
        pytest.param("c", "limits.memory", "1Mi", "64", id="megabytes"),
        pytest.param("c", "requests.cpu", None, "1", id="a request"),
        pytest.param("free", "limits.cpu", "1", "4", id="a limit of the node's"),
        pytest.param("free", "requests.cpu", "1", "0", id="a request is never the node's"),
        pytest.param("free", "limits.memory", "1Gi", "16", id="memory of the node's"),
        pytest.param("free", "limits.hugepages-2Mi", "1Mi", "4", id="huge pages"),
        pytest.param("c", "limits.hugepages-2Mi", None, "0", id="huge pages are never the node's"),
        pytest.param("init", "limits.memory", "1Gi", "16", id="an init container"),
    ],
)
def test_resources_of_a_container(pod, container, resource, divisor, text):
    assert amount(pod, container, resource, divisor) == text


@pytest.mark.parametrize(
    ("container", "resource", "message"),
    [
        pytest.param("q", "limits.cpu", r"^container q not found$", id="no such container"),
        pytest.param("c", "limits.pods", r"^unsupported container resource : limits\.pods$", id="no such resource"),
        pytest.param("c", "cpu", r"^unsupported container resource : cpu$", id="neither limit nor request"),
    ],
)
def test_resources_that_are_refused(pod, container, resource, message):
    with pytest.raises(VolumeSetupError, match=message):
        amount(pod, container, resource)


def test_a_node_that_nobody_knows_yet(pod):
    with pytest.raises(VolumeSetupError, match="failed retrieving node"):
        amount(pod, "c", "limits.cpu", allocatable=None)


def downward(pod, *items):
    source = convert(DownwardAPIVolumeSource, {"items": items})
    return downward_payload(pod, desired_allocation(pod), source.items, default_mode=0o644, allocatable=ALLOCATABLE)


def test_files_of_the_downward_api(pod):
    files = downward(
        pod,
        {"path": "this//name", "fieldRef": {"fieldPath": "metadata.name"}, "mode": 0o400},
        {"path": "cpu", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}},
    )
    assert files == {"this/name": FileProjection(b"p", 0o400), "cpu": FileProjection(b"2", 0o644)}


def test_everything_that_is_wrong_is_reported_at_once(pod):
    with pytest.raises(VolumeSetupError) as caught:
        downward(
            pod,
            {"path": "a", "fieldRef": {"fieldPath": "spec.x"}},
            {"path": "b", "resourceFieldRef": {"containerName": "q", "resource": "limits.cpu"}},
        )
    assert str(caught.value) == "[unsupported fieldPath: spec.x, container q not found]"
