"""Upstream's kubelet is stopped and klet started on its node, and back: no container of an API pod restarts."""

import pytest

from klet.api.config import ConfigMap
from klet.api.meta import ObjectMeta
from klet.api.pod import Pod
from klet.cri.client import connect
from klet.testing.containerd import REQUEST_TIMEOUT
from klet.wire import cri_v1_pb2 as pb

pytestmark = pytest.mark.usefixtures("upstream_kubelet")

FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"


def is_running(pod: Pod) -> bool:
    return pod.status.phase == "Running" and all(each.ready for each in pod.status.container_statuses)


def inhabitants(manifest) -> list[dict]:
    """Pods of all kinds."""
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    probed = manifest("probed", main=FOREVER)
    probed["spec"]["containers"][0] |= {"livenessProbe": probe, "readinessProbe": probe}
    mounted = manifest("mounted", main=FOREVER, spec={"automountServiceAccountToken": True})
    mounted["spec"]["volumes"] = [
        {"name": "c", "configMap": {"name": "taken"}},
        {"name": "e", "emptyDir": {"medium": "Memory"}},
    ]
    mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in mounted["spec"]["volumes"]]
    mounted["spec"]["containers"][0]["volumeMounts"] = mounts
    limited = manifest("limited", one=FOREVER, two=FOREVER)
    for container in limited["spec"]["containers"]:
        container["resources"] = {"limits": {"cpu": "100m", "memory": "32Mi"}}
    initialized = manifest("initialized", main=FOREVER)
    initialized["spec"]["initContainers"] = [
        {"name": "first", "image": initialized["spec"]["containers"][0]["image"], "command": ["true"]}
    ]
    return [manifest("plain", main=FOREVER), probed, mounted, limited, initialized]


async def containers_of(containerd) -> dict[str, int]:
    """The containers that run, by id, with their start times."""
    async with connect(runtime_endpoint=containerd.endpoint, timeout=REQUEST_TIMEOUT) as cri:
        running = pb.ContainerStateValue(state=pb.ContainerState.CONTAINER_RUNNING)
        listed = await cri.list_containers(pb.ListContainersRequest(filter=pb.ContainerFilter(state=running)))
        return {each.id: each.created_at for each in listed.containers}


async def at_home(api, names: list[str]) -> dict[str, list[str]]:
    """The containers of the pods, as the API shows them, once all run."""
    found = {}
    for name in names:
        pod = await api.until_pod(name, is_running, what="running")
        assert {each.restart_count for each in pod.status.container_statuses} == {0}
        found[name] = [each.container_id for each in pod.status.container_statuses]
    return found


async def works(api, node, manifest, name: str) -> None:
    """A new pod runs and goes: whoever keeps the node now keeps it."""
    await api.create(manifest(name), node=node.name)
    await api.until_pod(name, is_running, what="running")
    await api.delete(name)
    await api.until_gone(name)


async def test_upstream_to_klet_and_back(api, node, manifest, containerd, agent_flags):
    await api.client.create(ConfigMap(metadata=ObjectMeta(name="taken"), data={"k": "v"}), "default")
    pods = inhabitants(manifest)
    names = [pod["metadata"]["name"] for pod in pods]
    async with node.running(node.upstream()):
        for pod in pods:
            await api.create(pod, node=node.name)
        reported = await at_home(api, names)
        running = await containers_of(containerd)
    async with node.running(node.klet(*agent_flags)):
        await works(api, node, manifest, "under-klet")
        assert await at_home(api, names) == reported
        assert await containers_of(containerd) == running
    async with node.running(node.upstream()):
        await works(api, node, manifest, "under-upstream")
        assert await at_home(api, names) == reported
        assert await containers_of(containerd) == running
    async with node.running(node.klet(*agent_flags)):
        for name in names:
            await api.delete(name)
        for name in names:
            await api.until_gone(name)
        left = await api.until(lambda: containers_of(containerd), lambda found: not found)
    assert left == {}
