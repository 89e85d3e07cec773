"""The pod that a manifest would be on this node."""

import pytest

from klet.api.codec import convert
from klet.api.node import RuntimeClass
from klet.sources.decode import MAX_MANIFEST
from klet.sources.errors import ManifestError
from klet.sources.manifest_preview import ManifestPreview

CLASSES = {
    "vm": convert(
        RuntimeClass, {"metadata": {"name": "vm"}, "handler": "vm", "overhead": {"podFixed": {"memory": "64Mi"}}}
    )
}


def manifest(**spec):
    fields = "".join(f"  {name}: {value}\n" for name, value in spec.items())
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers: [{name: c, image: i}]\n"
    return (text + fields).encode()


def preview(*, has_api=False, **options):
    return ManifestPreview(node_name="machine", has_api=has_api, **options)


@pytest.mark.parametrize(
    ("has_api", "source", "expected"),
    [
        pytest.param(False, "", "file", id="static where there is no API server"),
        pytest.param(True, "", "api", id="bound by a scheduler where there is one"),
        pytest.param(True, "static", "file", id="static if asked"),
        pytest.param(False, "api", "api", id="bound if asked"),
    ],
)
def test_as_what_it_comes(has_api, source, expected):
    pod = preview(has_api=has_api).read(manifest(), source=source)
    assert pod.metadata.annotations["kubernetes.io/config.source"] == expected
    assert pod.metadata.name == ("web-machine" if expected == "file" else "web")
    assert (pod.metadata.namespace, pod.spec.node_name) == ("default", "machine")
    assert pod.metadata.uid
    assert pod.spec.restart_policy == "Always"


def test_a_bound_pod_names_its_own_node():
    pod = preview().read(manifest(nodeName="other"), source="api")
    assert pod.spec.node_name == "other"


@pytest.mark.parametrize(
    ("name", "priority"),
    [
        pytest.param("system-node-critical", 2_000_001_000, id="of the node"),
        pytest.param("system-cluster-critical", 2_000_000_000, id="of the cluster"),
        pytest.param("mine", None, id="a class that only the API server knows"),
    ],
)
def test_the_priority_of_a_bound_pod(name, priority):
    assert preview().read(manifest(priorityClassName=name), source="api").spec.priority == priority


def test_a_bound_pod_may_refer_to_objects_of_the_api():
    spec = {"serviceAccountName": "robot"}
    assert preview().read(manifest(**spec), source="api").spec.service_account_name == "robot"
    with pytest.raises(ManifestError, match="static pods may not reference serviceaccounts"):
        preview().read(manifest(**spec), source="static")


def test_the_overhead_of_its_runtime_class_counts():
    pod = preview(classes=CLASSES).read(manifest(runtimeClassName="vm"))
    assert {name: str(amount) for name, amount in pod.spec.overhead.items()} == {"memory": "64Mi"}


def test_fields_of_disabled_gates_do_not_count():
    enabled = preview(is_enabled=lambda _gate: True).read(manifest(hostnameOverride="other"))
    disabled = preview(is_enabled=lambda _gate: False).read(manifest(hostnameOverride="other"))
    assert (enabled.spec.hostname_override, disabled.spec.hostname_override) == ("other", None)


@pytest.mark.parametrize("source", ["static", "api"])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(manifest(restartPolicy="Sometimes"), "spec.restartPolicy", id="a broken rule"),
        pytest.param(
            manifest(terminationGracePeriodSeconds="soon"), "terminationGracePeriodSeconds", id="a wrong type"
        ),
        pytest.param(b"apiVersion: v1\nkind: Service\n", "'Service' is not Pod", id="another kind"),
        pytest.param(b"apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i}]}", "name", id="no name"),
        pytest.param(b"kind: [", "the manifest", id="no YAML"),
        pytest.param(b" " * (MAX_MANIFEST + 1), "longer than", id="too long"),
    ],
)
def test_what_no_source_would_take(source, data, message):
    with pytest.raises(ManifestError, match=message):
        preview().read(data, source=source)
