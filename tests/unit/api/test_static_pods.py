import os

import pytest

from klet.api.codec import convert
from klet.api.defaults import default_pod
from klet.api.placement import Toleration
from klet.api.pod import Pod
from klet.api.static_pods import StaticOrigin, default_static_pod, find_static_pod_problem, fnv128a

ALL = Toleration(operator="Exists", effect="NoExecute")


def pod(spec=None, **metadata):
    containers = [{"name": "c", "image": "i"}]
    manifest = {"metadata": {"name": "web", **metadata}, "spec": {"containers": containers, **(spec or {})}}
    return default_pod(convert(Pod, manifest))


def static(given, *, node="Node-1", origin=StaticOrigin.FILE, location="/etc/a.yaml"):
    return default_static_pod(given, node_name=node, origin=origin, location=location)


def test_a_static_pod_belongs_to_its_node():
    found = static(pod())
    assert (found.metadata.name, found.metadata.namespace, found.spec.node_name, found.status.phase) == (
        "web-node-1",
        "default",
        "Node-1",
        "Pending",
    )
    assert found.metadata.annotations == {"kubernetes.io/config.hash": found.metadata.uid}
    assert found.spec.tolerations == (ALL,)


def test_namespace_and_uid_of_the_manifest_stay():
    found = static(pod(namespace="n", uid="u", annotations={"a": "b"}))
    assert (found.metadata.namespace, found.metadata.uid) == ("n", "u")
    assert found.metadata.annotations == {"a": "b", "kubernetes.io/config.hash": "u"}


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        pytest.param(static(pod()), True, id="the same file again"),
        pytest.param(static(pod({"hostname": "x"})), False, id="another content"),
        pytest.param(static(pod(), node="b"), False, id="another node"),
        pytest.param(static(pod(), location="/b"), False, id="another file"),
        pytest.param(static(pod(), origin=StaticOrigin.URL), False, id="another kind of source"),
    ],
)
def test_the_uid_follows_content_and_place(other, is_same):
    assert (static(pod()).metadata.uid == other.metadata.uid) is is_same


def test_the_uid_of_a_file_whose_name_is_not_text():
    location = os.fsdecode(b"/manifests/\xff.yaml")
    assert static(pod(), location=location).metadata.uid != static(pod()).metadata.uid


def test_the_uid_of_a_url_is_the_same_on_every_node():
    first, second = (static(pod(), node=node, origin=StaticOrigin.URL, location="http://x") for node in "ab")
    assert first.metadata.uid == second.metadata.uid
    assert len(first.metadata.uid) == 32


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        pytest.param(b"", "6c62272e07bb014262b821756295c58d", id="nothing"),
        pytest.param(b"a", "d228cb696f1a8caf78912b704e4a8964", id="a letter"),
    ],
)
def test_fnv128a(data, digest):
    assert fnv128a(data) == digest


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param([{"key": "a"}], (Toleration(key="a"), ALL), id="added to others"),
        pytest.param(
            [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}], (ALL,), id="without a limit"
        ),
    ],
)
def test_tolerations(given, expected):
    assert static(pod({"tolerations": given})).spec.tolerations == expected


def test_pods_from_a_url_get_no_toleration():
    assert static(pod(), origin=StaticOrigin.URL).spec.tolerations == ()


def volume(**source):
    return {"volumes": [{"name": "v", **source}]}


def projected(**source):
    return volume(projected={"sources": [source]})


def env(**source):
    return {"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "valueFrom": source}]}]}


def env_from(**source):
    return {"initContainers": [{"name": "i", "image": "i", "envFrom": [source]}]}


@pytest.mark.parametrize(
    ("spec", "resource"),
    [
        pytest.param({"serviceAccountName": "a"}, "serviceaccounts", id="an account"),
        pytest.param(
            {"serviceAccount": "a", "imagePullSecrets": [{"name": "s"}]}, "serviceaccounts", id="accounts come first"
        ),
        pytest.param({"imagePullSecrets": [{"name": "s"}]}, "secrets", id="a pull secret"),
        pytest.param(env(secretKeyRef={"name": "s", "key": "k"}), "secrets", id="a secret in a variable"),
        pytest.param(env_from(secretRef={"name": "s"}), "secrets", id="a secret as environment"),
        pytest.param(volume(secret={"secretName": "s"}), "secrets", id="a secret volume"),
        pytest.param(projected(secret={"name": "s"}), "secrets", id="a projected secret"),
        pytest.param(volume(cephfs={"secretRef": {"name": "s"}}), "secrets", id="a secret of a storage system"),
        pytest.param(volume(azureFile={"secretName": "s"}), "secrets", id="a secret of azure"),
        pytest.param(
            volume(csi={"driver": "d", "nodePublishSecretRef": {"name": "s"}}), "secrets", id="a secret of CSI"
        ),
        pytest.param(env(configMapKeyRef={"name": "c", "key": "k"}), "configmaps", id="a config map in a variable"),
        pytest.param(env_from(configMapRef={"name": "c"}), "configmaps", id="a config map as environment"),
        pytest.param(volume(configMap={"name": "c"}), "configmaps", id="a config map volume"),
        pytest.param(projected(configMap={"name": "c"}), "configmaps", id="a projected config map"),
        pytest.param({"resourceClaims": [{"name": "r"}]}, "resourceclaims", id="a resource claim"),
        pytest.param(volume(csi={"driver": "d"}), "csidrivers (via CSI volumes)", id="a CSI volume"),
        pytest.param(volume(glusterfs={}), "endpoints (via glusterFS volumes)", id="a gluster volume"),
        pytest.param(volume(persistentVolumeClaim={"claimName": "c"}), "persistentvolumeclaims", id="a claim"),
        pytest.param(volume(ephemeral={}), "persistentvolumeclaims (via ephemeral volumes)", id="an ephemeral volume"),
        pytest.param(volume(azureFile={}), "secrets (via azureFile volumes)", id="an azure file"),
        pytest.param(
            projected(serviceAccountToken={"path": "t"}),
            "serviceaccounts (via projected volumes)",
            id="a projected token",
        ),
        pytest.param(projected(clusterTrustBundle={"path": "t"}), "clustertrustbundles", id="a trust bundle"),
        pytest.param(projected(podCertificate={}), "podcertificates", id="a certificate"),
    ],
)
def test_static_pods_use_no_api_objects(spec, resource):
    assert find_static_pod_problem(pod(spec)) == f"static pods may not reference {resource}"


@pytest.mark.parametrize(
    "source",
    [
        pytest.param({}, id="an empty directory"),
        pytest.param({"hostPath": {"path": "/x"}}, id="a host path"),
        pytest.param({"nfs": {"server": "s", "path": "/x"}}, id="a network file system"),
        pytest.param({"image": {"reference": "x"}}, id="an image"),
        pytest.param({"downwardAPI": {}}, id="fields of the pod"),
        pytest.param({"projected": {"sources": [{"downwardAPI": {}}]}}, id="projected fields of the pod"),
    ],
)
def test_volumes_of_the_node_are_fine(source):
    assert find_static_pod_problem(pod(volume(**source))) is None


def test_unknown_sources_are_named():
    nothing = convert(Pod, {"spec": {"volumes": [{"name": "v"}]}})
    assert find_static_pod_problem(nothing) == 'unknown volume type for volume  "v"'
    assert find_static_pod_problem(pod(projected())) == 'unknown source for projected volume "v"'


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        pytest.param({"serviceAccountName": "a", "imagePullSecrets": [{"name": "s"}]}, None, id="objects are allowed"),
        pytest.param(
            projected(clusterTrustBundle={"path": "t"}),
            "static pods may not use ClusterTrustBundle projected volume sources",
            id="but no trust bundles",
        ),
        pytest.param({"resourceClaims": [{"name": "r"}]}, "static pods may not use ResourceClaims", id="and no claims"),
    ],
)
def test_without_the_gate(spec, problem):
    assert find_static_pod_problem(pod(spec), prevent_api_references=False) == problem
