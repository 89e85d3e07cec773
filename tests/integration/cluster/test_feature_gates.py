"""Pods that use features whose gates are off on their node, beside upstream's kubelet with the same gates.

The API server has these features on and lets the pods in.
"""

import pytest

from klet.api.event import Event
from klet.api.pod import Pod
from klet.host.images import BUSYBOX_IMAGE
from klet.testing.control_plane.programs import VERSION, chosen_release

pytestmark = [
    pytest.mark.usefixtures("upstream_kubelet"),
    pytest.mark.skipif(
        chosen_release() != VERSION,
        reason="an API server of another release may drop the fields: run it with that of klet",
    ),
]

GATES = (
    *("ContainerRestartRules", "EnvFiles", "HostnameOverride", "ImageVolume", "PodLevelResources"),
    *("PodReadyToStartContainersCondition", "DisableNodeKubeProxyVersion"),
)
CONDITIONS = ["ContainersReady", "Initialized", "PodScheduled", "Ready"]
RESTART = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
FROM_FILE = {"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "env", "key": "A"}}}


def make_pods(manifest) -> dict[str, dict]:
    """A pod for each feature; what it saw of it is its termination message."""
    once = {"restartPolicy": "Never"}
    renamed = manifest("renamed", main="hostname > /dev/termination-log", spec={**once, "hostnameOverride": "other"})
    variable = manifest("variable", main='echo "A=$A" > /dev/termination-log', spec=once)
    mount = {"name": "v", "mountPath": "/v"}
    writer = {"name": "writer", "image": BUSYBOX_IMAGE, "command": ["sh", "-c", "echo A=a > /v/env"]}
    variable["spec"]["initContainers"] = [writer | {"volumeMounts": [mount]}]
    variable["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    variable["spec"]["containers"][0]["env"] = [FROM_FILE]
    restarts = manifest("restarts", main="exit 42", spec=once)
    restarts["spec"]["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [RESTART]}
    sized = manifest("sized", main="true", spec={**once, "resources": {"limits": {"cpu": "1", "memory": "64Mi"}}})
    image = manifest("image", main="true", spec=once)
    image["spec"]["volumes"] = [{"name": "v", "image": {"reference": BUSYBOX_IMAGE}}]
    image["spec"]["containers"][0]["volumeMounts"] = [mount]
    return {pod["metadata"]["name"]: pod for pod in (renamed, variable, restarts, sized, image)}


def outcome(pod: Pod) -> tuple[str, str, str, list, list]:
    ends = [
        (each.name, each.restart_count, each.state.terminated and each.state.terminated.message)
        for each in pod.status.container_statuses
    ]
    # A pod that is rejected gets its conditions with a later status.
    conditions = sorted(each.type for each in pod.status.conditions) if ends else []
    return pod.status.phase, pod.status.reason, pod.status.message, ends, conditions


async def until_failed_mount(api, pod: Pod) -> Event:
    """The Event about this very pod: there may be one about an older pod of that name."""

    async def read() -> list[Event]:
        found = (await api.client.list(Event, "default")).items
        return [each for each in found if (each.reason, each.involved_object.uid) == ("FailedMount", pod.metadata.uid)]

    [event, *_] = await api.until(read, bool)
    return event


async def observe(api, node, manifest) -> dict[str, object]:
    """What became of the pods, and whether the Node shows a version of kube-proxy; the pods are gone afterwards."""
    pods = make_pods(manifest)
    for pod in pods.values():
        await api.create(pod, node=node.name)
    ended = {
        name: outcome(await api.until_pod(name, lambda pod: pod.status.phase in ("Failed", "Succeeded"), what="ended"))
        for name in pods
        if name != "image"
    }
    waiting = api.pods.get("image", "default")
    assert waiting.status.phase == "Pending"
    ended["image"] = (await until_failed_mount(api, waiting)).message
    for name in pods:
        await api.delete(name)
    for name in pods:
        await api.until_gone(name)
    info = api.nodes.get(node.name).status.node_info
    return {**ended, "proxy": info.kube_proxy_version == info.kubelet_version}


async def test_the_same_becomes_of_pods_whose_features_are_off(api, node, manifest, agent_flags):
    off = dict.fromkeys(GATES, False)
    async with node.running(node.upstream(featureGates=off)):
        expected = await observe(api, node, manifest)
    async with node.running(node.klet(*agent_flags, featureGates=off)):
        found = await observe(api, node, manifest)
    assert found == expected
    assert expected["renamed"] == ("Succeeded", "", "", [("main", 0, "renamed\n")], CONDITIONS)
    assert expected["variable"] == ("Succeeded", "", "", [("main", 0, "A=\n")], CONDITIONS)
    assert expected["restarts"][0] == "Failed"
    assert expected["proxy"]
    assert expected["sized"][:2] == ("Failed", "PodLevelResourcesNotSupported")
