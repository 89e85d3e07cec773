"""klet beside upstream's kubelet on the same node: which pods are not taken in, in which words, and what pods see."""

import asyncio

import pytest

from klet.api.pod import Pod
from klet.wire import cri_v1_pb2 as pb

pytestmark = pytest.mark.usefixtures("upstream_kubelet")

KINDS = ("upstream", "klet")
RESERVED = {
    "systemReserved": {"cpu": "100m", "memory": "64Mi", "ephemeral-storage": "1Gi"},
    "kubeReserved": {"memory": "32Mi"},
    "evictionHard": {"memory.available": "16Mi"},
}
TELLS = "echo $CPU $MEMORY $EPHEMERAL; cat /down/memory; echo; grep ' /scratch ' /proc/mounts; sleep 1000"
REJECTED = {
    "armored": {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}},
    "strict": {"securityContext": {"supplementalGroupsPolicy": "Strict"}},
    "tuned": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
    "lost": {"nodeSelector": {"disk": "ssd"}},
}
REQUESTS = {"busy": {"cpu": "900"}, "fat": {"memory": "900Ti"}, "wide": {"ephemeral-storage": "900Ti"}}
"""Of pods for which no machine has enough."""


def keeper(node, kind, agent_flags, **settings):
    """klet or upstream's kubelet, not started."""
    return node.klet(*agent_flags, **settings) if kind == "klet" else node.upstream(**settings)


def is_over(pod: Pod) -> bool:
    return pod.status.phase == "Failed"


def has_ended(pod: Pod) -> bool:
    return pod.status.phase in {"Failed", "Succeeded"}


def is_running(pod: Pod) -> bool:
    return pod.status.phase == "Running"


async def rejection(api, name):
    status = (await api.until_pod(name, is_over, what="rejected")).status
    event = await api.until_event(status.reason, about=name)
    return status.reason, status.message, event.type, event.message


async def remove(api, *names):
    for name in names:
        await api.delete(name)
    for name in names:
        await api.until_gone(name)


async def until_room(api, node, count):
    """Until the Node says that it has room for so many pods: the one before may have said something else."""

    def has_room(found):
        pods = found.status.allocatable.get("pods")
        return pods is not None and pods.value() == count

    await api.until_node(node.name, has_room, what=f"room for {count} pods")


async def test_what_the_host_and_the_runtime_cannot_do(api, node, manifest, agent_flags):
    found = {}
    for kind in KINDS:
        async with node.running(keeper(node, kind, agent_flags)):
            await until_room(api, node, 500)
            for name, spec in REJECTED.items():
                await api.create(manifest(f"{kind}-{name}", spec=spec), node=node.name)
            found[kind] = {name: await rejection(api, f"{kind}-{name}") for name in REJECTED}
            await remove(api, *(f"{kind}-{name}" for name in REJECTED))
    assert found["klet"] == found["upstream"]
    assert {name: told[0] for name, told in found["klet"].items()} == {
        "armored": "AppArmor",
        "strict": "SupplementalGroupsPolicyNotSupported",
        "tuned": "SysctlForbidden",
        "lost": "NodeAffinity",
    }


def requesting(pod, **requests):
    pod["spec"]["containers"][0]["resources"] = {"requests": requests}
    return pod


async def test_what_is_more_than_there_is(api, node, manifest, agent_flags):
    found = {}
    for kind in KINDS:
        async with node.running(keeper(node, kind, agent_flags)):
            await until_room(api, node, 500)
            for name, requests in REQUESTS.items():
                await api.create(requesting(manifest(f"{kind}-{name}"), **requests), node=node.name)
            found[kind] = {name: await rejection(api, f"{kind}-{name}") for name in REQUESTS}
            await remove(api, *(f"{kind}-{name}" for name in REQUESTS))
    assert found["klet"] == found["upstream"]
    reasons = {name: said[0] for name, said in found["klet"].items()}
    assert reasons == {"busy": "OutOfcpu", "fat": "OutOfmemory", "wide": "OutOfephemeral-storage"}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param(3, ("Failed", "Preempting", "Preempted in order to admit critical pod"), id="that fails"),
        # As upstream has it: a pod whose containers end well has succeeded, whoever has stopped them.
        pytest.param(0, ("Succeeded", "", ""), id="that ends well"),
    ],
)
async def test_a_pod_makes_room_for_a_critical_one(api, node, manifest, agent_flags, code, expected):
    """Of two that suffice the same one has to go, and it says the same of itself."""
    main = f"trap 'exit {code}' TERM; while true; do sleep 1000 & wait $!; done"
    found = {}
    for kind in KINDS:
        names = small, large, critical = [f"{kind}-{name}" for name in ("small", "large", "critical")]
        async with node.running(keeper(node, kind, agent_flags)):
            await until_room(api, node, 500)
            cpus = (
                (await api.until_node(node.name, lambda _: True, what="there")).status.allocatable["cpu"].milli_value()
            )
            shares = {small: cpus * 2 // 5, large: cpus // 2}
            for name, share in shares.items():
                await api.create(requesting(manifest(name, main=main), cpu=f"{share}m"), node=node.name)
                await api.until_pod(name, is_running, what="running")
            pod = manifest(critical, main=main, spec={"priorityClassName": "system-node-critical"})
            await api.create(requesting(pod, cpu=f"{cpus * 2 // 5}m"), node=node.name)
            await api.until_pod(critical, is_running, what="running")
            gone = (await api.until_pod(small, has_ended, what="preempted")).status
            event = await api.until_event("Preempting", about=small)
            kept = await api.until_pod(large, is_running, what="still running")
            (disrupted,) = [each for each in gone.conditions if each.type == "DisruptionTarget"]
            found[kind] = (
                (gone.phase, gone.reason, gone.message),
                kept.status.phase,
                (disrupted.status, disrupted.reason, disrupted.message),
                (event.type, event.message),
            )
            await remove(api, *names)
    assert found["klet"] == found["upstream"]
    assert found["klet"][:2] == (expected, "Running")


async def test_a_full_node(api, node, manifest, agent_flags):
    found = {}
    for kind in KINDS:
        first, second = f"{kind}-first", f"{kind}-second"
        async with node.running(keeper(node, kind, agent_flags, maxPods=1)):
            await until_room(api, node, 1)
            await api.create(manifest(first), node=node.name)
            await api.until_pod(first, is_running, what="running")
            await api.create(manifest(second), node=node.name)
            found[kind] = await rejection(api, second)
            await remove(api, first, second)
    assert found["klet"] == found["upstream"]
    assert found["klet"][0] == "OutOfpods"


async def test_what_a_container_without_limits_is_told(api, node, manifest, agent_flags):
    def wanted(name):
        return {"resourceFieldRef": {"resource": f"limits.{name}", "containerName": "main"}}

    def built(name):
        volumes = [
            {"name": "down", "downwardAPI": {"items": [{"path": "memory"} | wanted("memory")]}},
            {"name": "scratch", "emptyDir": {"medium": "Memory"}},
        ]
        pod = manifest(name, main=TELLS, spec={"volumes": volumes})
        variables = {"CPU": "cpu", "MEMORY": "memory", "EPHEMERAL": "ephemeral-storage"}
        pod["spec"]["containers"][0] |= {
            "env": [{"name": key, "valueFrom": wanted(resource)} for key, resource in variables.items()],
            "volumeMounts": [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in volumes],
        }
        return pod

    found = {}
    for kind in KINDS:
        name = f"{kind}-told"
        async with node.running(keeper(node, kind, agent_flags, maxPods=77, **RESERVED)):
            await until_room(api, node, 77)
            await api.create(built(name), node=node.name)
            await api.until_pod(name, is_running, what="running")
            log = node.logs.glob(f"default_{name}_*/main/0.log")
            found[kind] = await api.until(
                lambda log=list(log): asyncio.to_thread(said, log), lambda text: "tmpfs" in text
            )
            left = (await api.until_node(node.name, lambda _: True, what="there")).status.allocatable
            environment, file, _ = found[kind].splitlines()
            assert environment.split()[1] == file == str(left["memory"].value())
            assert environment.split()[2] == str(left["ephemeral-storage"].value())
            await remove(api, name)
    assert found["klet"] == found["upstream"]


def said(logs) -> str:
    """What a container has said, without the front of its lines."""
    return "\n".join(line.split(" ", 3)[3] for path in logs for line in path.read_text().splitlines())


async def test_a_pod_with_a_claim_waits(api, node, manifest, agent_flags, cri):
    claims = [{"name": "gpu", "resourceClaimName": "shared-gpu"}]
    for kind in KINDS:
        name = f"{kind}-claiming"
        pod = manifest(name, spec={"resourceClaims": claims})
        pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
        async with node.running(keeper(node, kind, agent_flags)):
            await until_room(api, node, 500)
            await api.create(pod, node=node.name)
            event = await api.until_event("FailedPrepareDynamicResources", about=name)
            assert event.type == "Warning"
            assert event.message.startswith("Failed to prepare dynamic resources: prepare dynamic resources: ")
            assert "ResourceClaim shared-gpu: " in event.message
            waiting = await api.until_pod(name, lambda pod: bool(pod.status.container_statuses), what="waiting")
            assert waiting.status.phase == "Pending"
            assert waiting.status.container_statuses[0].state.waiting.reason == "ContainerCreating"
            uid = waiting.metadata.uid
            selected = pb.PodSandboxFilter(label_selector={"io.kubernetes.pod.uid": uid})
            assert not (await cri.list_pod_sandbox(pb.ListPodSandboxRequest(filter=selected))).items
            await remove(api, name)
