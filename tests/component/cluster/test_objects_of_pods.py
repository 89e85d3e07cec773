"""Pods of a cluster use its objects: in their volumes, in their environment, for their sandboxes."""

import pytest

from klet.api.certificates import ClusterTrustBundle, ClusterTrustBundleSpec
from klet.api.config import ConfigMap, Secret
from klet.api.meta import ObjectMeta
from klet.api.node import RuntimeClass
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.api.service import Service, ServicePort, ServiceSpec
from klet.embedded.identities import ApiUser
from klet.node.settings import NodeSettings, Reservations

BUDGET = 15.0
"""Seconds from a change at the API server to the file, on a busy machine. What waits for the next look takes more."""
CONFIG = {"name": "v", "configMap": {"name": "cfg"}}
ACCESS = {
    "name": "kube-api-access",
    "projected": {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ]
    },
}


async def put_secret(cluster, name, **data: bytes):
    await cluster.client.create(Secret(metadata=ObjectMeta(name=name), data=data), "default")


async def put_service(cluster, name, address):
    spec = ServiceSpec(cluster_ip=address, ports=(ServicePort(port=80),))
    await cluster.client.create(Service(metadata=ObjectMeta(name=name), spec=spec), "default")


async def test_a_default_pod_has_a_token_the_root_certificate_and_its_namespace(node, cluster):
    await cluster.client.create(
        ConfigMap(metadata=ObjectMeta(name="kube-root-ca.crt"), data={"ca.crt": "a certificate"}), "default"
    )
    async with node.run():
        pod = await node.bind(volumes=[ACCESS], serviceAccountName="default")
        await node.until_running()
        files = node.volume(pod, "projected", "kube-api-access")
        assert (files / "ca.crt").read_text() == "a certificate"
        assert (files / "namespace").read_text() == "default"
        user = cluster.api.identities.review((files / "token").read_text(), ())
        assert isinstance(user, ApiUser)
        assert user.name == "system:serviceaccount:default:default"
        await cluster.client.delete(Pod, "p", "default", grace=0)
        await node.until(lambda found: found is None)
        await node.reported("Removed")
        assert node.mounts.mounts == {}
        assert list((node.root / "pods").iterdir()) == []


async def test_a_container_without_limits_is_told_what_its_node_has_for_pods(node):
    """What the Node says counts, which an administrator may have changed."""
    reserved = Reservations(fixed={"memory": Quantity.parse("1Gi")})
    node.machine.settings = NodeSettings(name="node", reservations=reserved)
    wanted = {"resourceFieldRef": {"resource": "limits.memory", "containerName": "c"}}
    async with node.run():
        volume = {"name": "v", "downwardAPI": {"items": [{"path": "memory"} | wanted]}}
        memory = {"name": "scratch", "emptyDir": {"medium": "Memory"}}
        env = {"env": [{"name": "MEMORY", "valueFrom": wanted}]}
        pod = await node.bind(volumes=[volume, memory], container=env)
        await node.until_running()
        left = node.nodes.get("node").status.allocatable["memory"].value()
        assert left == 3 << 30
        assert node.environment()["MEMORY"] == str(left)
        assert (node.volume(pod, "downward-api") / "memory").read_text() == str(left)
        assert node.mounts.mounts[node.volume(pod, "empty-dir", "scratch")][2] == (f"size={left}",)


async def test_a_changed_config_map_is_in_the_file_of_a_running_pod_within_the_budget(node, cluster):
    await cluster.put("cfg", x="1")
    async with node.run():
        pod = await node.bind(volumes=[CONFIG])
        await node.until_running()
        file = node.volume(pod, "configmap") / "x"
        assert file.read_text() == "1"
        for text in ("2", "3"):
            began = node.clock.monotonic()
            await cluster.client.patch(ConfigMap, "cfg", "default", patch={"data": {"x": text}})
            assert await node.until_shown(file, text) - began < BUDGET


async def test_a_config_map_that_changed_while_no_agent_ran_is_in_the_file_soon(node, cluster):
    await cluster.put("cfg", x="1")
    async with node.run():
        pod = await node.bind(volumes=[CONFIG])
        await node.until_running()
    await cluster.client.patch(ConfigMap, "cfg", "default", patch={"data": {"x": "2"}})
    async with node.run():
        await node.until_shown(node.volume(pod, "configmap") / "x", "2")
    assert len(node.machine.runtime.containers()) == 1


@pytest.mark.parametrize("strategy", ["Watch", "Cache", "Get"])
async def test_every_way_to_notice_changes_gives_pods_their_objects(node, cluster, strategy):
    await cluster.put("cfg", x="1")
    async with node.run(strategy=strategy):
        pod = await node.bind(volumes=[CONFIG])
        await node.until_running()
        assert (node.volume(pod, "configmap") / "x").read_text() == "1"


async def test_a_pod_waits_for_a_volume_that_is_missing_and_goes_on_when_it_comes(node, cluster):
    async with node.run():
        await node.bind(volumes=[CONFIG])
        assert (await node.reported("FailedMount"))[0] == (
            'MountVolume.SetUp failed for volume "v" : configmap "cfg" not found'
        )
        assert not node.machine.runtime.sandboxes()
        await cluster.put("cfg", x="1")
        await node.until_running()


async def test_a_pod_that_waits_for_its_volumes_can_be_deleted(node, cluster):
    async with node.run():
        await node.bind(volumes=[CONFIG])
        await node.reported("FailedMount")
        await cluster.client.delete(Pod, "p", "default", grace=1)
        # It gives up sooner than the pod would give up waiting, which is after two minutes.
        await node.until(lambda found: found is None)


async def test_a_volume_of_an_optional_object_is_empty_until_that_comes(node, cluster):
    optional = {"name": "v", "configMap": {"name": "cfg", "optional": True}}
    async with node.run():
        pod = await node.bind(volumes=[optional])
        await node.until_running()
        await cluster.put("cfg", x="1")
        await node.until_shown(node.volume(pod, "configmap") / "x", "1")


async def test_the_environment_has_objects_and_services(node, cluster):
    await cluster.put("cfg", color="green")
    await put_secret(cluster, "key", password=b"hush")
    await put_service(cluster, "web", "10.0.0.7")
    container = {
        "envFrom": [{"configMapRef": {"name": "cfg"}}, {"secretRef": {"name": "key"}, "prefix": "S_"}],
        "env": [
            {"name": "ONE", "valueFrom": {"secretKeyRef": {"name": "key", "key": "password"}}},
            {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "k", "optional": True}}},
        ],
    }
    async with node.run():
        await node.bind(container=container)
        await node.until_running()
        found = node.environment()
        assert {name: found.get(name) for name in ("color", "S_password", "ONE", "NONE", "WEB_SERVICE_HOST")} == {
            "color": "green",
            "S_password": "hush",
            "ONE": "hush",
            "NONE": None,
            "WEB_SERVICE_HOST": "10.0.0.7",
        }


async def test_a_container_whose_environment_is_missing_says_so_and_starts_when_it_comes(node, cluster):
    container = {"envFrom": [{"secretRef": {"name": "key"}}]}
    async with node.run():
        await node.bind(container=container)
        waiting = await node.until(lambda pod: waits(pod) == "CreateContainerConfigError")
        assert waiting.status.container_statuses[0].state.waiting.message == 'secret "key" not found'
        began = node.clock.monotonic()
        await put_secret(cluster, "key", password=b"hush")
        await node.until_running()
        assert node.clock.monotonic() - began < 9  # the back-off would take ten


async def test_a_pod_runs_with_the_handler_of_its_runtime_class(node, cluster):
    await cluster.client.create(RuntimeClass(metadata=ObjectMeta(name="quick"), handler="crun"))
    async with node.run():
        await node.bind(runtimeClassName="quick")
        await node.until_running()
        assert [sandbox.runtime_handler for sandbox in node.machine.runtime.sandboxes()] == ["crun"]


async def test_a_runtime_class_that_does_not_exist_is_reported(node):
    async with node.run():
        await node.bind(runtimeClassName="none")
        [message, *_] = await node.reported("FailedCreatePodSandBox")
        assert message.endswith('runtimeclass.node.k8s.io "none" not found')


async def test_a_volume_shows_the_trust_bundles_of_a_signer_and_follows_them(node, cluster):
    def bundle(name, text):
        spec = ClusterTrustBundleSpec(signer_name="example.com/ca", trust_bundle=text)
        return ClusterTrustBundle(metadata=ObjectMeta(name=name, labels={"live": "yes"}), spec=spec)

    one, two = (f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n" for text in ("b25l", "dHdv"))
    await cluster.client.create(bundle("example.com:ca:one", one))
    source = {"signerName": "example.com/ca", "labelSelector": {"matchLabels": {"live": "yes"}}, "path": "ca.pem"}
    async with node.run():
        pod = await node.bind(volumes=[{"name": "v", "projected": {"sources": [{"clusterTrustBundle": source}]}}])
        await node.until_running()
        file = node.volume(pod, "projected") / "ca.pem"
        assert file.read_text() == one
        patch = {"spec": {"trustBundle": two}}
        await cluster.client.patch(ClusterTrustBundle, "example.com:ca:one", patch=patch)
        await node.until_shown(file, two)


def waits(pod):
    if pod is None or not pod.status.container_statuses:
        return ""
    waiting = pod.status.container_statuses[0].state.waiting
    return waiting.reason if waiting is not None else ""
