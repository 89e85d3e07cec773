from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from klet.api.certificates import ClusterTrustBundle
from klet.api.codec import convert
from klet.api.node import Node, RuntimeClass
from klet.api.pod import Pod
from klet.api.service import Service
from klet.checkpoint import CheckpointDamaged, CheckpointVersion, Envelope
from klet.offline.snapshot import AcceptedPods, KeptCluster, KeptClusterFormat, PodsFormat
from klet.testing.builders import make_pod

AT = datetime(2030, 1, 1, tzinfo=UTC)
POD = convert(
    Pod,
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "default",
            "uid": "u",
            "resourceVersion": "7",
            "creationTimestamp": "2030-01-01T00:00:00Z",
            "annotations": {"a": "ü"},
        },
        "spec": {
            "nodeName": "n",
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "ports": [{"containerPort": 80}],
                    "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}},
                    "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 3},
                    "livenessProbe": {"tcpSocket": {"port": 80}},
                }
            ],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}],
        },
        "status": {"phase": "Running", "startTime": "2030-01-01T00:00:01Z", "conditions": [{"type": "Ready"}]},
    },
)


def test_kept_pods_without_a_valid_uid_are_left_out(caplog):
    form = PodsFormat()
    accepted = AcceptedPods(node_name="n", at=AT, pods=(make_pod(uid=".."), POD))
    assert form.decode(form.encode(accepted)).pods == (POD,)
    assert "left out" in caplog.text


def test_pods_are_read_as_they_were_written():
    accepted = AcceptedPods(node_name="n", at=AT, pods=(POD, make_pod(uid="w")))
    form = PodsFormat()
    assert PodsFormat().decode(form.encode(accepted)) == accepted
    changed = replace(POD, spec=replace(POD.spec, node_name="m"))
    later = AcceptedPods(node_name="n", at=AT, pods=(changed,))
    assert PodsFormat().decode(form.encode(later)) == later


def test_who_set_which_field_is_not_kept():
    entries = convert(Pod, {"metadata": {"managedFields": [{"manager": "x"}]}}).metadata.managed_fields
    pod = replace(POD, metadata=replace(POD.metadata, managed_fields=entries))
    form = PodsFormat()
    assert form.decode(form.encode(AcceptedPods(node_name="n", at=AT, pods=(pod,)))).pods == (POD,)


def test_surroundings_are_read_as_they_were_written():
    around = KeptCluster(
        node_name="n",
        at=AT,
        nodes=(convert(Node, {"metadata": {"name": "n"}, "spec": {"podCIDRs": ["10.0.0.0/24"]}}),),
        services=(convert(Service, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1, "targetPort": "a"}]}}),),
        runtime_classes=(convert(RuntimeClass, {"metadata": {"name": "r"}, "handler": "crun"}),),
        trust_bundles=(convert(ClusterTrustBundle, {"metadata": {"name": "t"}, "spec": {"trustBundle": "x"}}),),
    )
    form = KeptClusterFormat()
    assert form.decode(form.encode(around)) == around


def test_surroundings_from_before_trust_bundles_were_kept_are_read():
    payload = {"nodeName": "n", "at": "2030-01-01T00:00:00Z", "nodes": [], "services": [], "runtimeClasses": []}
    assert KeptClusterFormat().decode(envelope(payload, kind="OfflineSurroundings")).trust_bundles == ()


def envelope(payload, *, kind="AcceptedPods", version=1):
    return Envelope(kind=kind, version=version, payload=msgspec.Raw).encode(msgspec.Raw(msgspec.json.encode(payload)))


GOOD = {"nodeName": "n", "at": "2030-01-01T00:00:00Z", "pods": []}


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        pytest.param(b"", CheckpointDamaged, "not a klet checkpoint", id="an empty file"),
        pytest.param(envelope(GOOD)[:-9], CheckpointDamaged, "not a klet checkpoint", id="half a file"),
        pytest.param(envelope(GOOD).replace(b'"n"', b'"m"'), CheckpointDamaged, "checksum", id="a changed name"),
        pytest.param(envelope({**GOOD, "pods": [1]}), CheckpointDamaged, "field payload", id="a number for a pod"),
        pytest.param(envelope({"pods": []}), CheckpointDamaged, "field payload", id="no node"),
        pytest.param(envelope(GOOD, kind="AgentMemory"), CheckpointDamaged, "kind", id="another kind of file"),
        pytest.param(envelope(GOOD, version=2), CheckpointVersion, "version is 2", id="a later version"),
    ],
)
def test_files_that_cannot_be_used(data, error, message):
    with pytest.raises(error, match=message):
        PodsFormat().decode(data)
