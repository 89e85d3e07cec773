import pytest

from klet.api.certificates import ClusterTrustBundle
from klet.api.coordination import Lease
from klet.api.kinds import KINDS, find_kind, kind_of
from klet.api.node import Node
from klet.api.pod import Pod


@pytest.mark.parametrize(
    ("struct", "namespace", "name", "path"),
    [
        pytest.param(Pod, "", "", "/api/v1/pods", id="pods everywhere"),
        pytest.param(Pod, "ns", "", "/api/v1/namespaces/ns/pods", id="pods of a namespace"),
        pytest.param(Pod, "ns", "p", "/api/v1/namespaces/ns/pods/p", id="one pod"),
        pytest.param(Node, "ignored", "n", "/api/v1/nodes/n", id="a node has no namespace"),
        pytest.param(
            Lease,
            "kube-node-lease",
            "n",
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n",
            id="a kind of a named group",
        ),
    ],
)
def test_path(struct, namespace, name, path):
    assert kind_of(struct).path(namespace, name) == path


def test_each_kind_is_found_by_version_and_name():
    assert all(find_kind(kind.api_version, kind.name) is kind for kind in KINDS)
    assert find_kind("v1", "Deployment") is None


def test_group_and_version():
    assert [(kind_of(struct).group, kind_of(struct).version) for struct in (Pod, Lease)] == [
        ("", "v1"),
        ("coordination.k8s.io", "v1"),
    ]


def test_the_newer_version_is_preferred():
    assert kind_of(ClusterTrustBundle).api_version == "certificates.k8s.io/v1beta1"


def test_kinds_carry_their_version_and_name():
    assert all({"api_version", "kind", "metadata"} <= set(kind.struct.__struct_fields__) for kind in KINDS)
