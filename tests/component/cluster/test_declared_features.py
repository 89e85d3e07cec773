"""Features that a node of a cluster declares: in its status, at the admission of pods and when pods change."""

import asyncio

import pytest

from klet.embedded.store import Key

CPU_RESIZE = "GuaranteedQoSPodCPUResize"
RULE = {"restartPolicy": "Never", "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {
    "operator": "In", "values": [42]}}]}  # fmt: skip
GUARANTEED = {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}}


async def until_declared(node, expected):
    with node.nodes.changes() as changes:
        async with asyncio.timeout(30):
            while (found := node.nodes.get("node")) is None or not found.status.conditions:
                await changes.get()
    assert found.status.declared_features == expected


@pytest.mark.parametrize(
    "declared",
    [
        pytest.param((CPU_RESIZE, "RestartAllContainersOnContainerExits"), id="two features"),
        pytest.param(None, id="the gate is off"),
    ],
)
async def test_the_status_of_the_node_has_them(node, declared):
    node.declared_features = declared
    async with node.run():
        await until_declared(node, declared or ())


def bind_with_rule(node):
    """Put the pod into the store: the embedded API has upstream's default gates, and would refuse it."""
    main = {"name": "c", "image": "busybox:1", "imagePullPolicy": "IfNotPresent", **RULE}
    spec = {"nodeName": "node", "containers": [main], "restartPolicy": "Never", "dnsPolicy": "Default"}
    metadata = {"name": "p", "namespace": "default", "uid": "uid-1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": "Pending", "qosClass": "BestEffort"},
    }
    node.cluster.api.store.put(Key("pods", "default", "p"), pod)


async def test_a_pod_that_needs_another_one_is_rejected(node):
    node.declared_features = (CPU_RESIZE,)
    async with node.run():
        bind_with_rule(node)
        pod = await node.until(lambda pod: pod is not None and pod.status.phase == "Failed")
        why = "Pod requires node features that are not available: RestartAllContainersOnContainerExits"
        assert (pod.status.reason, pod.status.message) == ("PodFeatureUnsupported", f"Pod was rejected: {why}")
        assert await node.reported("PodFeatureUnsupported") == [why]


async def test_with_the_gate_off_the_same_pod_is_admitted(node):
    async with node.run():
        bind_with_rule(node)
        await node.reported("PodAdded")
        pod = await node.until(lambda pod: pod is not None and bool(pod.status.conditions))
        assert pod.status.reason != "PodFeatureUnsupported"


async def test_a_change_that_needs_another_one_is_warned_of(node):
    node.declared_features = ()
    async with node.run():
        await node.bind(container={"resources": GUARANTEED})
        pod = await node.until_running()
        key = Key("pods", "default", "p")
        changed = node.cluster.api.store.get(key)
        changed["metadata"]["generation"] = pod.metadata.generation + 1
        changed["spec"]["containers"][0]["resources"] = {**GUARANTEED, "requests": {"cpu": "2", "memory": "64Mi"}}
        node.cluster.api.store.put(key, changed)
        told = await node.reported("FailedNodeDeclaredFeaturesCheck")
        assert told == [f"Pod requires node features that are not available: {CPU_RESIZE}"]
        assert (await node.until_running()).status.phase == "Running"
