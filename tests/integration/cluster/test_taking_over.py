"""Upstream's kubelet is stopped and klet started on its node, and back: no container of an API pod restarts."""

import os
from pathlib import Path

import pytest

from klet.api.config import ConfigMap
from klet.api.meta import ObjectMeta
from klet.api.pod import Pod
from klet.checkpoint.upstream import MemoryManagerFormat
from klet.cri.client import connect
from klet.host.cpulist import format_cpu_list
from klet.host.machine.reader import MachineReader
from klet.testing.containerd import REQUEST_TIMEOUT
from klet.wire import cri_v1_pb2 as pb

pytestmark = pytest.mark.usefixtures("upstream_kubelet")

ONLINE = MachineReader().online_cpus()
NUMA_NODES = [each.number for each in MachineReader().info().numa_nodes]
OWN, REST = str(max(ONLINE)), format_cpu_list(ONLINE - {max(ONLINE)})
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


def forget_policies(node) -> None:
    """Remove the records of resource managers, as one has to with another policy."""
    for name in ("cpu_manager_state", "memory_manager_state"):
        (node.root / name).unlink(missing_ok=True)


def cpuset_of(pod: Pod, node, name: str, qos: str = "") -> str:
    """The CPUs or NUMA nodes of a pod's container by its cgroup."""
    container_id = pod.status.container_statuses[0].container_id.removeprefix("containerd://")
    place = Path(node.settings["cgroupRoot"].lstrip("/"), "kubepods", qos, f"pod{pod.metadata.uid}", container_id)
    root = Path("/sys/fs/cgroup/cpuset") if Path("/sys/fs/cgroup/cpuset").is_dir() else Path("/sys/fs/cgroup")
    return (root / place / name).read_text().strip()


@pytest.mark.skipif(
    len(ONLINE & os.sched_getaffinity(0)) < 2, reason="a second CPU: impossible on a machine that has only one"
)
async def test_cpus_that_a_container_has_alone(api, node, manifest, containerd, agent_flags):
    """Nothing is assigned again: neither moves anybody, and both go on with the file of the other."""
    static = {"cpuManagerPolicy": "static", "reservedSystemCPUs": REST, "cpuManagerReconcilePeriod": "1s"}
    file = node.root / "cpu_manager_state"
    forget_policies(node)
    amounts = {"cpu": "1", "memory": "32Mi"}
    own = manifest("own", main=FOREVER)
    own["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}

    async def where() -> dict[str, str]:
        pods = {name: await api.until_pod(name, is_running, what="running") for name in ("own", "shared")}
        return {
            "own": cpuset_of(pods["own"], node, "cpuset.cpus"),
            "shared": cpuset_of(pods["shared"], node, "cpuset.cpus", "besteffort"),
        }

    async with node.running(node.upstream(**static)):
        await api.create(own, node=node.name)
        await api.until_pod("own", is_running, what="running")
        await api.create(manifest("shared", main=FOREVER), node=node.name)
        reported = await at_home(api, ["own", "shared"])
        assert await where() == {"own": OWN, "shared": REST}
        running, state = await containers_of(containerd), file.read_bytes()
    async with node.running(node.klet(*agent_flags, **static)):
        await works(api, node, manifest, "under-klet")
        assert await at_home(api, ["own", "shared"]) == reported
        assert (await containers_of(containerd), file.read_bytes()) == (running, state)
        assert await where() == {"own": OWN, "shared": REST}
    async with node.running(node.upstream(**static)):
        await works(api, node, manifest, "under-upstream")
        assert await at_home(api, ["own", "shared"]) == reported
        assert (await containers_of(containerd), file.read_bytes()) == (running, state)
        assert await where() == {"own": OWN, "shared": REST}
    async with node.running(node.klet(*agent_flags, **static)):
        for name in ("own", "shared"):
            await api.delete(name)
            await api.until_gone(name)


async def test_memory_that_a_container_has_alone(api, node, manifest, containerd, agent_flags):
    """The record of who has what memory of which NUMA node is the same for both, byte for byte."""
    static = {
        "memoryManagerPolicy": "Static",
        "topologyManagerPolicy": "restricted",
        "systemReserved": {"memory": "99Mi"},
        # With the eviction threshold of the node.
        "reservedMemory": [{"numaNode": NUMA_NODES[0], "limits": {"memory": "100Mi"}}],
    }
    file = node.root / "memory_manager_state"
    forget_policies(node)
    own = manifest("own", main=FOREVER)
    amounts = {"cpu": "100m", "memory": "32Mi"}
    own["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    async with node.running(node.upstream(**static)):
        await api.create(own, node=node.name)
        pod = await api.until_pod("own", is_running, what="running")
        reported = await at_home(api, ["own"])
        running, state = await containers_of(containerd), file.read_bytes()
    (blocks,) = MemoryManagerFormat().decode(state).entries[pod.metadata.uid].values()
    (block,) = blocks
    assert (block.type, block.size) == ("memory", 32 << 20)
    mems = ",".join(map(str, block.numa_affinity))
    assert cpuset_of(pod, node, "cpuset.mems") == mems
    async with node.running(node.klet(*agent_flags, **static)):
        await works(api, node, manifest, "under-klet")
        assert await at_home(api, ["own"]) == reported
        assert (await containers_of(containerd), file.read_bytes()) == (running, state)
        second = own | {"metadata": own["metadata"] | {"name": "second"}}
        await api.create(second, node=node.name)
        pod = await api.until_pod("second", is_running, what="running")
        assert cpuset_of(pod, node, "cpuset.mems") == mems
        reported = await at_home(api, ["own", "second"])
        running, state = await containers_of(containerd), file.read_bytes()
    async with node.running(node.upstream(**static)):
        await works(api, node, manifest, "under-upstream")
        assert await at_home(api, ["own", "second"]) == reported
        assert (await containers_of(containerd), file.read_bytes()) == (running, state)
    async with node.running(node.klet(*agent_flags, **static)):
        for name in ("own", "second"):
            await api.delete(name)
            await api.until_gone(name)
