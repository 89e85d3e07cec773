"""A pod that a node of a cluster does not take in: its user reads why in an Event and in the pod's status."""

import asyncio
import random

import pytest

from klet.aio.clock import SystemClock
from klet.api.event import Event
from klet.api.node import Node
from klet.kube.informer import Informer, InformerSettings
from klet.kube.watch import WatchScope
from klet.node.settings import NodeSettings

PORT = {"ports": [{"containerPort": 80, "hostPort": 8080}]}
TUNED = {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}


async def first_warning(cluster, name):
    """The first warning about a pod."""
    settings = InformerSettings(cluster.client, cluster.watcher, SystemClock(), random.Random(1))
    events = Informer(struct=Event, scope=WatchScope("default"), settings=settings)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        task = group.create_task(events.run())
        with events.changes() as changes:
            while not (found := [each for each in events.all() if is_warning(each, name)]):
                await changes.get()
        task.cancel()
    return found[0].reason, found[0].message


def is_warning(event, name):
    return event.involved_object.name == name and event.type == "Warning"


@pytest.mark.parametrize(
    ("container", "spec", "reason", "message"),
    [
        pytest.param(
            {},
            TUNED,
            "SysctlForbidden",
            'forbidden sysctl: "kernel.msgmax" not allowlisted',
            id="a kernel parameter that nobody allowed",
        ),
        pytest.param(
            {},
            {"os": {"name": "windows"}},
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
            id="another operating system",
        ),
        pytest.param(
            PORT,
            {},
            "NodePorts",
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
            id="a port that another pod has",
        ),
        pytest.param(
            {"resources": {"requests": {"memory": "64Gi"}}},
            {},
            "OutOfmemory",
            f"Node didn't have enough resource: memory, requested: {64 << 30}, used: 0, capacity: {4 << 30}",
            id="more memory than there is",
        ),
        pytest.param(
            {},
            {"nodeSelector": {"disk": "ssd"}},
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
            id="a label that the node does not have",
        ),
        pytest.param(
            {},
            {"securityContext": {"supplementalGroupsPolicy": "Strict"}},
            "SupplementalGroupsPolicyNotSupported",
            "SupplementalGroupsPolicy=Strict is not supported in this node",
            id="groups that the runtime would add all the same",
        ),
        pytest.param(
            {},
            {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}},
            "AppArmor",
            "Cannot enforce AppArmor: AppArmor is not enabled on the host",
            id="a profile that the host does not enforce",
        ),
    ],
)
async def test_a_rejection_is_a_warning_with_upstreams_words(node, cluster, container, spec, reason, message):
    async with node.run():
        await node.bind("first", container=PORT)
        await node.until_running("first")
        await node.bind("rejected", container=container, **spec)
        rejected = await node.until(lambda pod: pod is not None and pod.status.phase == "Failed", "rejected")
        assert (rejected.status.reason, rejected.status.message) == (reason, f"Pod was rejected: {message}")
        assert await first_warning(cluster, "rejected") == (reason, message)


async def test_a_pod_that_does_not_tolerate_a_taint_of_the_node_is_rejected(node, cluster):
    taint = {"key": "maintenance", "effect": "NoExecute"}
    await cluster.client.patch(Node, "node", patch={"spec": {"taints": [taint]}})
    async with node.run():
        await node.bind("tolerant", tolerations=[{"key": "maintenance", "operator": "Exists"}])
        await node.until_running("tolerant")
        await node.bind("rejected")
        rejected = await node.until(lambda pod: pod is not None and pod.status.phase == "Failed", "rejected")
        message = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
        assert (rejected.status.reason, rejected.status.message) == (
            "TaintToleration",
            f"Pod was rejected: {message}",
        )
        assert await first_warning(cluster, "rejected") == ("TaintToleration", message)


async def test_labels_of_the_node_count_as_soon_as_the_api_server_has_them(node, cluster):
    async with node.run():
        await node.bind("first")
        await node.until_running("first")
        await cluster.client.patch(Node, "node", patch={"metadata": {"labels": {"disk": "ssd"}}})
        await node.bind("second", nodeSelector={"disk": "ssd"})
        await node.until_running("second")


async def test_a_full_node_rejects_a_pod(node, cluster):
    node.machine.settings = NodeSettings(name="node", max_pods=1)
    message = "Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1"
    async with node.run():
        await node.bind("first")
        await node.until_running("first")
        await node.bind("rejected")
        rejected = await node.until(lambda pod: pod is not None and pod.status.phase == "Failed", "rejected")
        assert (rejected.status.reason, rejected.status.message) == ("OutOfpods", f"Pod was rejected: {message}")
        assert await first_warning(cluster, "rejected") == ("OutOfpods", message)
        assert str(node.nodes.get("node").status.allocatable["pods"]) == "1"


async def test_a_host_and_a_runtime_that_can_do_more_take_such_pods_in(node):
    node.machine.machine.has_app_armor = True
    node.set_features(supplemental_groups_policy=True)
    async with node.run():
        context = {"supplementalGroupsPolicy": "Strict", "appArmorProfile": {"type": "RuntimeDefault"}}
        await node.bind("first", securityContext=context)
        await node.until_running("first")
        (made,) = node.machine.runtime.containers()
        assert made.config.linux.security_context.apparmor_profile == "runtime/default"


async def test_a_pod_with_a_claim_waits_and_says_why(node, cluster):
    async with node.run():
        claims = [{"name": "gpu", "resourceClaimName": "shared-gpu"}]
        await node.bind("claiming", resourceClaims=claims, container={"resources": {"claims": [{"name": "gpu"}]}})
        why = "ResourceClaim shared-gpu: klet does not prepare ResourceClaims (DRA) yet"
        assert await first_warning(cluster, "claiming") == (
            "FailedPrepareDynamicResources",
            f"Failed to prepare dynamic resources: prepare dynamic resources: {why}",
        )
        waiting = await node.until(lambda pod: pod is not None and pod.status.container_statuses, "claiming")
        assert waiting.status.phase == "Pending"
        assert node.machine.runtime.sandboxes() == ()
