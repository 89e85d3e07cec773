"""Which config maps and secrets a pod and its volumes refer to."""

import pytest
from msgspec.structs import replace

from klet.api.certificates import ClusterTrustBundle, ClusterTrustBundleSpec
from klet.api.codec import convert
from klet.api.meta import LabelSelector, ObjectMeta
from klet.api.pod import Pod
from klet.model.objects import ObjectKind, ObjectRef, choose_bundles, pod_config_maps, pod_secrets, volume_objects


def pod_of(**spec) -> Pod:
    return convert(Pod, {"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [{"name": "c"}], **spec}})


def with_env(**source) -> Pod:
    return pod_of(containers=[{"name": "c", "env": [{"name": "A", "valueFrom": source}]}])


def with_volume(**source) -> Pod:
    return pod_of(volumes=[{"name": "v", **source}])


@pytest.mark.parametrize(
    ("pod", "names"),
    [
        pytest.param(pod_of(imagePullSecrets=[{"name": "a"}, {"name": "a"}]), {"a"}, id="pull secrets, each once"),
        pytest.param(with_env(secretKeyRef={"name": "a", "key": "k"}), {"a"}, id="a variable"),
        pytest.param(
            pod_of(initContainers=[{"name": "i", "envFrom": [{"secretRef": {"name": "a"}}]}]),
            {"a"},
            id="a whole environment of an init container",
        ),
        pytest.param(
            pod_of(ephemeralContainers=[{"name": "e", "envFrom": [{"secretRef": {"name": "a"}}]}]),
            {"a"},
            id="an ephemeral container counts",
        ),
        pytest.param(with_volume(secret={"secretName": "a"}), {"a"}, id="a volume"),
        pytest.param(
            with_volume(projected={"sources": [{"secret": {"name": "a"}}, {"secret": {"name": "b"}}]}),
            {"a", "b"},
            id="parts of a projected volume",
        ),
        pytest.param(
            with_volume(csi={"driver": "d", "nodePublishSecretRef": {"name": "a"}}), {"a"}, id="a csi volume's secret"
        ),
        pytest.param(
            with_volume(iscsi={"targetPortal": "t", "iqn": "i", "lun": 0, "secretRef": {"name": "a"}}),
            {"a"},
            id="the secret of an old driver",
        ),
        pytest.param(with_volume(azureFile={"secretName": "a", "shareName": "s"}), {"a"}, id="an azure share"),
        pytest.param(pod_of(imagePullSecrets=[{}]), set(), id="a name that is empty is none"),
        pytest.param(with_volume(configMap={"name": "a"}), set(), id="a config map is no secret"),
    ],
)
def test_secrets_of_a_pod(pod, names):
    assert pod_secrets(pod) == names


@pytest.mark.parametrize(
    ("pod", "names"),
    [
        pytest.param(with_env(configMapKeyRef={"name": "a", "key": "k"}), {"a"}, id="a variable"),
        pytest.param(
            pod_of(containers=[{"name": "c", "envFrom": [{"configMapRef": {"name": "a"}}]}]),
            {"a"},
            id="a whole environment",
        ),
        pytest.param(with_volume(configMap={"name": "a"}), {"a"}, id="a volume"),
        pytest.param(
            with_volume(projected={"sources": [{"configMap": {"name": "a"}}]}), {"a"}, id="part of a projected volume"
        ),
        pytest.param(with_volume(secret={"secretName": "a"}), set(), id="a secret is no config map"),
    ],
)
def test_config_maps_of_a_pod(pod, names):
    assert pod_config_maps(pod) == names


def test_a_volume_shows_what_it_is_made_of():
    certificate = {"podCertificate": {"signerName": "a.b/c", "keyType": "ED25519", "keyPath": "k"}}
    sources = [{"configMap": {"name": "a"}}, {"secret": {"name": "b"}}, {"downwardAPI": {}}, certificate]
    pod = with_volume(projected={"sources": sources})
    pod = replace(pod, metadata=replace(pod.metadata, name="p", namespace="n"))
    assert volume_objects(pod.spec.volumes[0], pod) == {
        ObjectRef(ObjectKind.CONFIG_MAP, "n", "a"),
        ObjectRef(ObjectKind.SECRET, "n", "b"),
        ObjectRef(ObjectKind.POD_CERTIFICATE, "n", "p"),
    }


def bundle(name: str, signer: str = "s", **labels: str) -> ClusterTrustBundle:
    spec = ClusterTrustBundleSpec(signer_name=signer)
    return ClusterTrustBundle(metadata=ObjectMeta(name=name, labels=labels), spec=spec)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param(None, [], id="no selector takes none"),
        pytest.param(LabelSelector(), ["a", "b"], id="an empty one takes all of the signer"),
        pytest.param(LabelSelector(match_labels={"live": "yes"}), ["b"], id="by labels"),
    ],
)
def test_choose(selector, expected):
    bundles = [bundle("a"), bundle("b", live="yes"), bundle("c", signer="other", live="yes")]
    assert [each.metadata.name for each in choose_bundles(bundles, signer="s", selector=selector)] == expected
