"""Runtime classes: a pod under crun beside pods under runc."""

import json
import shutil
from pathlib import Path

import pytest

from klet.host.cgroups.discover import find_hierarchy
from klet.host.cgroups.layout import CgroupMode
from klet.wire import cri_v1_pb2 as pb

pytestmark = [pytest.mark.root, pytest.mark.containerd]

MIB = 1 << 20
QUICK = {
    "metadata": {"name": "quick"},
    "handler": "crun",
    "overhead": {"podFixed": {"cpu": "50m", "memory": "16Mi"}},
}
LIMITED = {"limits": {"cpu": "100m", "memory": "32Mi"}}


def memory_limit(cgroup: str) -> int:
    if find_hierarchy().mode is CgroupMode.UNIFIED:
        return int(Path(f"/sys/fs/cgroup{cgroup}/memory.max").read_text())
    return int(Path(f"/sys/fs/cgroup/memory{cgroup}/memory.limit_in_bytes").read_text())


async def sandbox_of(cri, uid):
    selector = {"io.kubernetes.pod.uid": uid}
    request = pb.ListPodSandboxRequest(filter=pb.PodSandboxFilter(label_selector=selector))
    (sandbox,) = (await cri.list_pod_sandbox(request)).items
    return (await cri.pod_sandbox_status(pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox.id))).status


async def test_a_pod_runs_under_crun_and_its_overhead_counts(node, cri, containerd, manifest, klet_config):
    if not shutil.which("crun"):
        pytest.skip("no crun: apt-get install crun")
    pod = manifest("quick", main="sleep 1000", spec={"runtimeClassName": "quick"})
    pod["spec"]["containers"][0]["resources"] = LIMITED
    node.write("quick", pod)
    node.write("plain", manifest("plain", main="sleep 1000"))
    async with node.run(klet_config(QUICK)) as agent:
        await agent.recorded("quick", "Ready")
        await agent.recorded("plain", "Ready")
        pods = await agent.pods()
        states = {}
        for name, found in pods.items():
            sandbox = await sandbox_of(cri, found.metadata.uid)
            containers = [status.container_id for status in found.status.container_statuses]
            members = [sandbox.id, *(each.removeprefix("containerd://") for each in containers)]
            roots = [containerd.settings.runtime_root / "k8s.io" / member for member in members]
            # Each runtime keeps a container's state in a file of its own.
            written = {file.name for root in roots for file in root.iterdir()} & {"status", "state.json"}
            states[name] = (sandbox.runtime_handler, written)
        assert states == {"quick": ("crun", {"status"}), "plain": ("", {"state.json"})}
        uid = pods["quick"].metadata.uid
        # Its own 32Mi and the 16Mi of the class.
        assert memory_limit(f"{containerd.cgroup_parent}/kubepods/pod{uid}") == 48 * MIB
        assert {name: str(amount) for name, amount in pods["quick"].spec.overhead.items()} == {
            "cpu": "50m",
            "memory": "16Mi",
        }
        node.remove("quick")
        await agent.recorded("quick", "Finished", "Removed")


async def test_an_unknown_class_is_reported_as_upstream_does(node, manifest, klet_config):
    node.write("odd", manifest("odd", main="sleep 1000", spec={"runtimeClassName": "kata"}))
    async with node.run(klet_config(QUICK)) as agent:
        (failure,) = await agent.recorded("odd", "FailedCreatePodSandBox")
        assert failure["message"] == 'Failed to create pod sandbox: runtimeclass.node.k8s.io "kata" not found'


async def test_a_handler_that_the_runtime_does_not_have(node, manifest, klet_config):
    node.write("odd", manifest("odd", main="sleep 1000", spec={"runtimeClassName": "vm"}))
    async with node.run(klet_config({"metadata": {"name": "vm"}, "handler": "kata"})) as agent:
        (failure,) = await agent.recorded("odd", "FailedCreatePodSandBox")
        assert failure["message"].startswith("Failed to create pod sandbox: rpc error: code = Unknown desc = ")
        assert 'no runtime for "kata" is configured' in failure["message"]


async def test_a_bad_class_ends_the_start_with_file_and_field(node, klet_config, tmp_path):
    node.config.write_text(json.dumps(node.settings))
    flag = klet_config({"metadata": {"name": "Quick"}, "handler": "crun"})
    code, said = await node.run_to_end(f"--config={node.config}", flag)
    assert code == 1
    where = f"klet: failed to load klet config file, path: {tmp_path}/klet.yaml, error: runtimeClasses[0].metadata.name"
    assert said.startswith(f'{where}: Invalid value: "Quick": ')
