"""Many pods that come and go: nothing of them is left on the node or at the API server."""

import asyncio
import os
import re

import pytest

from klet.api.config import ConfigMap
from klet.api.event import Event
from klet.api.meta import ObjectMeta
from klet.cri.client import connect
from klet.testing.containerd import REQUEST_TIMEOUT
from klet.testing.leftovers import find_cgroups
from klet.wire import cri_v1_pb2 as pb

PODS = int(os.environ.get("KLET_CHURN_PODS", "60"))
"""The whole of it, KLET_CHURN_PODS=300, takes two minutes of a machine with two processors."""
AT_ONCE = 24
FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"
EXPECTED = re.compile(
    "ttrpc: closed"  # containerd 1.6 fails to stop what is just ending by itself; the next try succeeds
    '|failed to fetch token: pod "churn-[0-9]+" not found'  # deleted while it started
)


def churned(manifest, number: int) -> dict:
    """Every kind of pod in turn: with an account, with volumes, of several containers, one that ends by itself."""
    name = f"churn-{number}"
    volumes = [{"name": "c", "configMap": {"name": "churned"}}, {"name": "e", "emptyDir": {"medium": "Memory"}}]
    match number % 4:
        case 0:
            pod = manifest(name, spec={"automountServiceAccountToken": True})
        case 1:
            pod = manifest(name, spec={"volumes": volumes})
            mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in volumes]
            pod["spec"]["containers"][0]["volumeMounts"] = mounts
        case 2:
            pod = manifest(name, one=FOREVER, two=FOREVER)
        case _:
            pod = manifest(name, main="exit 0", spec={"restartPolicy": "Never"})
    return pod


async def live(api, node, manifest, number: int) -> None:
    """From the binding of a pod to its end; one in five is deleted before it has started."""
    pod = churned(manifest, number)
    name = pod["metadata"]["name"]
    await api.create(pod, node=node.name)
    if number % 5:
        await api.until_pod(name, lambda each: each.status.phase not in ("", "Pending"), what="started")
    await api.delete(name)
    await api.until_gone(name)


@pytest.mark.deadline(300 + PODS)
async def test_pods_that_come_and_go_leave_nothing_behind(ready, api, node, containerd, manifest):
    await api.client.create(ConfigMap(metadata=ObjectMeta(name="churned"), data={"k": "v"}), "default")
    numbers = iter(range(PODS))

    async def worker() -> None:
        for number in numbers:
            await live(api, node, manifest, number)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(worker())
    async with connect(runtime_endpoint=containerd.endpoint, timeout=REQUEST_TIMEOUT) as cri:
        left = await api.until(lambda: leftovers(node, containerd, cri), lambda found: not found)
    assert left == []
    events = (await api.client.list(Event, "default")).items
    warnings = [each for each in events if each.type == "Warning" and each.involved_object.kind == "Pod"]
    # Other tests of this control plane warn of their own pods.
    about_pods = [each for each in warnings if each.involved_object.name.startswith("churn-")]
    assert {each.reason: each.message for each in about_pods if not EXPECTED.search(each.message)} == {}


async def leftovers(node, containerd, cri) -> list[str]:
    """What there is of pods on the node. Their API objects go first: the runtime's part is removed a little later."""
    containers = (await cri.list_containers(pb.ListContainersRequest())).containers
    sandboxes = (await cri.list_pod_sandbox(pb.ListPodSandboxRequest())).items
    return [each.id for each in (*containers, *sandboxes)] + places(node, containerd) + node.mounts()


def places(node, containerd) -> list[str]:
    """Directories and cgroups of pods. Tests of static pods have left cgroups too; their UIDs have no dashes."""
    cgroups = find_cgroups("pod*-*", below=f"{containerd.cgroup_parent}/kubepods")
    return [str(each) for each in (*(node.root / "pods").iterdir(), *node.logs.iterdir(), *cgroups)]
