"""klet as a node of a real control plane: the node, its lease, its pods from their binding to their end."""

from klet.api.coordination import Lease
from klet.api.node import Node
from klet.api.pod import Pod
from klet.testing.control_plane.programs import chosen_minor

OBSERVED_GENERATION_SINCE = 34
FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"


def is_ready(pod: Pod) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)


async def test_the_node_registers(ready, node):
    info = ready.status.node_info
    assert info.kubelet_version.startswith("v1.35.")
    assert info.container_runtime_version.startswith("containerd://")
    assert ready.metadata.labels["kubernetes.io/hostname"] == node.name
    assert ready.status.daemon_endpoints.kubelet_endpoint.port == node.port
    assert {each.type for each in ready.status.addresses} == {"InternalIP", "Hostname"}
    conditions = {each.type: each.status for each in ready.status.conditions}
    assert conditions == {"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "Ready": "True"}


async def test_its_lease_belongs_to_it(ready, api, node):
    # The node may be ready a moment before its first lease is there.

    async def find_lease() -> Lease | None:
        found = await api.client.list(Lease, "kube-node-lease")
        return next((each for each in found.items if each.metadata.name == node.name), None)

    lease = await api.until(find_lease, bool)
    assert lease.spec.holder_identity == node.name
    (owner,) = lease.metadata.owner_references
    assert (owner.kind, owner.name, owner.uid) == ("Node", node.name, ready.metadata.uid)


async def test_a_pod_runs_and_is_let_go(ready, api, node, manifest):
    await api.create(manifest("web", main=f"echo hello; {FOREVER}"), node=node.name)
    pod = await api.until_pod("web", is_ready, what="Ready")
    status = pod.status
    assert status.phase == "Running"
    assert status.pod_ip
    assert status.start_time is not None
    # Older API servers drop the field.
    observed = pod.metadata.generation if chosen_minor() >= OBSERVED_GENERATION_SINCE else 0
    assert status.observed_generation == observed
    internal = [each.address for each in ready.status.addresses if each.type == "InternalIP"]
    assert (status.host_ip, [each.ip for each in status.host_ips]) == (internal[0], internal)
    (container,) = status.container_statuses
    assert container.state.running is not None
    assert container.restart_count == 0
    for reason in ("Pulled", "Created", "Started"):
        event = await api.until_event(reason, about="web")
        assert event.involved_object.field_path == "spec.containers{main}"
        assert (event.source.component, event.source.host) == ("kubelet", node.name)
        assert event.involved_object.uid == pod.metadata.uid
    await api.delete("web")
    await api.until_event("Killing", about="web")
    await api.until_gone("web")


async def test_a_job_succeeds(ready, api, node, manifest):
    await api.create(manifest("job", main="exit 0", spec={"restartPolicy": "Never"}), node=node.name)
    pod = await api.until_pod("job", lambda pod: pod.status.phase == "Succeeded", what="Succeeded")
    assert pod.status.container_statuses[0].state.terminated.reason == "Completed"
    await api.delete("job")
    await api.until_gone("job")


async def test_a_pod_that_does_not_want_to_end_is_killed_in_time(ready, api, node, manifest):
    await api.create(
        manifest("stubborn", main="trap '' TERM; while true; do sleep 1000 & wait $!; done"), node=node.name
    )
    await api.until_pod("stubborn", is_ready, what="Ready")
    await api.delete("stubborn")
    ending = await api.until_pod("stubborn", lambda pod: pod.metadata.deletion_timestamp is not None, what="ending")
    assert ending.metadata.deletion_grace_period_seconds == 2
    await api.until_gone("stubborn")


async def test_a_static_pod_is_shown_by_its_mirror(ready, api, node, manifest):
    name = f"static-{node.name}"
    node.write("static", manifest("static"))
    mirror = await api.until_pod(name, is_ready, what="Ready")
    (owner,) = mirror.metadata.owner_references
    assert (owner.kind, owner.uid, owner.controller) == ("Node", ready.metadata.uid, True)
    assert mirror.metadata.annotations["kubernetes.io/config.source"] == "file"
    assert "kubernetes.io/config.mirror" in mirror.metadata.annotations
    container = mirror.status.container_statuses[0].container_id

    await api.client.delete(Pod, name, "default", grace=0)
    again = await api.until_pod(
        name, lambda pod: pod.metadata.uid != mirror.metadata.uid and is_ready(pod), what="made again"
    )
    assert again.status.container_statuses[0].container_id == container

    (node.manifests / "static.yaml").unlink()
    await api.until_gone(name)


async def test_a_node_that_is_there_is_adopted(ready, api, node, agent, agent_flags):
    await api.client.patch(Node, node.name, patch={"metadata": {"labels": {"mine": "yes"}}})
    await agent.stop()
    began = ready.status.conditions
    agent.start()
    await api.until_event("Starting", about=node.name)
    found = await api.client.get(Node, node.name)
    assert found.metadata.uid == ready.metadata.uid
    assert found.metadata.labels["mine"] == "yes"
    assert {each.type for each in found.status.conditions} == {each.type for each in began}
