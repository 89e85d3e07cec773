"""What a pod asks for, as the kernel has it in the end: pod and class cgroups, containers, OOM scores."""

import os
from pathlib import Path

from klet.host.cgroups.layout import CgroupMode
from klet.host.cgroups.names import parse_cgroupfs
from klet.host.procfs import CAP_SYS_RESOURCE, ProcReader

FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"
MIB = 1 << 20


def with_resources(manifest: dict, **resources) -> dict:
    for container in manifest["spec"]["containers"]:
        container["resources"] = resources
    return manifest


def can_lower_oom_scores() -> bool:
    return ProcReader().process_status(os.getpid()).has_capability(CAP_SYS_RESOURCE)


def oom_scores(pids: frozenset[int]) -> set[int]:
    return {int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in pids}


async def container_id(agent, name: str) -> str:
    status = (await agent.pod(name)).status.container_statuses[0]
    return status.container_id.removeprefix("containerd://")


async def test_limits_reach_the_pod_the_container_and_its_process(node, manifest, cgroups):
    limits = {"cpu": "500m", "memory": "64Mi"}
    kubepods = parse_cgroupfs(node.settings["cgroupRoot"]).child("kubepods")
    async with node.run(podPidsLimit=200) as agent:
        node.write("web", with_resources(manifest("web", main=FOREVER), requests=limits, limits=limits))
        await agent.recorded("web", "Ready")
        pod = await agent.pod("web")
        of_pod = kubepods.child(f"pod{pod.metadata.uid}")
        values = await cgroups.read(of_pod)
        assert (values.cpu_quota, values.memory_limit, values.pids_limit) == (50000, 64 * MIB, 200)
        of_container = of_pod.child(await container_id(agent, "web"))
        values = await cgroups.read(of_container)
        assert (values.cpu_quota, values.memory_limit) == (50000, 64 * MIB)
        if can_lower_oom_scores():
            assert oom_scores(await cgroups.pids(of_container)) == {-997}
        if cgroups.mode is CgroupMode.UNIFIED:
            group = Path("/sys/fs/cgroup") / cgroups.path(of_container).lstrip("/") / "memory.oom.group"
            assert group.read_text() == "1\n"


async def test_the_class_gets_the_cpu_that_its_pods_ask_for(node, manifest, cgroups):
    burstable = parse_cgroupfs(node.settings["cgroupRoot"]).child("kubepods", "burstable")
    async with node.run() as agent:
        node.write("one", with_resources(manifest("one", main=FOREVER), requests={"cpu": "1"}))
        node.write("two", with_resources(manifest("two", main=FOREVER), requests={"cpu": "1"}))
        await agent.recorded("one", "Ready")
        await agent.recorded("two", "Ready")
        with_both = (await cgroups.read(burstable)).cpu_shares
        node.remove("two")
        await agent.recorded("two", "Finished")
        with_one = (await cgroups.read(burstable)).cpu_shares
        node.remove("one")
        await agent.recorded("one", "Finished")
        with_none = (await cgroups.read(burstable)).cpu_shares
        kept = (2046, 998, 2) if cgroups.mode is CgroupMode.UNIFIED else (2048, 1024, 2)
        assert (with_both, with_one, with_none) == kept


async def test_containers_outside_of_the_pods_cgroup_are_restarted_inside(node, manifest, cgroups):
    node.write("web", manifest("web", main=FOREVER))
    async with node.run() as agent:
        await agent.recorded("web", "Ready")
        before = await container_id(agent, "web")
        await agent.kill()
    root = f"{node.settings['cgroupRoot']}/moved"
    async with node.run(cgroupRoot=root) as agent:
        await agent.recorded("web", "PodCgroupMissing", "Killing", "Started", "Ready")
        uid = (await agent.pod("web")).metadata.uid
        after = await container_id(agent, "web")
        assert after != before
        inside = parse_cgroupfs(root).child("kubepods", "besteffort", f"pod{uid}", after)
        assert oom_scores(await cgroups.pids(inside)) == {1000}
