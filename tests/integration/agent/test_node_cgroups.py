"""The cgroups of the node under a real agent: only below the cgroup that the test's containerd has."""

import json
import os
import signal
from pathlib import Path

import pytest

from klet.host.cgroups.discover import find_hierarchy
from klet.host.cgroups.names import CgroupName, parse_cgroupfs
from klet.host.cgroups.resources import CgroupResources
from klet.host.cpulist import format_cpu_list
from klet.host.machine.reader import MachineReader

FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"
MIB = 1 << 20
ALL = int(os.environ.get("KLET_CGROUP_KILLS", "0"))
NUMBERS = range(1, ALL + 1) if ALL else (1, 9, 24, 33)
RESERVED = {"cpu": "500m", "memory": "256Mi", "pid": "100"}
PLAIN = CgroupResources()


@pytest.fixture
async def top(node, cgroups, tmp_path):
    """A root for the node of this test; its pods are stopped with the containerd, and its cgroups are gone then."""
    name = parse_cgroupfs(node.settings["cgroupRoot"]).child(f"top-{tmp_path.name.replace('_', '-')}")
    node.settings["cgroupRoot"] = cgroups.path(name)
    yield name
    await cgroups.kill_all(name)
    await cgroups.destroy(name)


@pytest.fixture
async def reserved(node, cgroups, top):
    """A cgroup of the system that is there, and a node that limits it."""
    name = top.child("system")
    await cgroups.create(name, PLAIN)
    node.settings |= {
        "systemReserved": RESERVED,
        "systemReservedCgroup": cgroups.path(name),
        "enforceNodeAllocatable": ["pods", "system-reserved"],
    }
    return name


async def recorded(agent, decision: str) -> list[str]:
    lines = (await agent.text("/klet/v1/journal")).splitlines()
    return [record["message"] for line in lines if (record := json.loads(line))["decision"] == decision]


async def values_of(cgroups, top: CgroupName) -> dict[str, CgroupResources]:
    """Read every cgroup of the node, with those of pods by their class alone."""
    kubepods = top.child("kubepods")
    of_pods = await cgroups.children(kubepods.child("burstable"))
    assert len(of_pods) == 1
    names = {
        "system": top.child("system"),
        "kubepods": kubepods,
        "burstable": kubepods.child("burstable"),
        "besteffort": kubepods.child("besteffort"),
        "pod": next(iter(of_pods)),
    }
    return {key: await cgroups.read(name) for key, name in names.items()}


async def test_pods_do_not_get_what_is_reserved_for_the_system(node, cgroups, top, reserved):
    machine = MachineReader().info()

    async with node.run() as agent:
        of_reserved = f"Updated limits on system reserved cgroup {cgroups.path(reserved)}"

        async def are_enforced() -> bool:
            done = await recorded(agent, "NodeAllocatableEnforced")
            return sorted(done) == ["Updated Node Allocatable limit across pods", of_reserved]

        await agent.until_recorded(are_enforced, what="both limits")
        of_pods, of_system = await cgroups.read(top.child("kubepods")), await cgroups.read(reserved)
    page = machine.page_size
    assert of_pods.memory_limit == (machine.memory - 256 * MIB) // page * page
    assert of_pods.pids_limit == machine.max_processes - 100
    assert of_pods.cpuset == format_cpu_list(machine.online_cpus)
    assert of_system.memory_limit == 256 * MIB
    assert of_system.pids_limit == 100
    if cgroups.mode.version == 1:
        assert (of_pods.cpu_shares, of_system.cpu_shares) == (machine.cpus * 1024 - 512, 512)


async def test_a_reserved_cgroup_that_is_missing_ends_the_agent(node, cgroups, top):
    node.config.write_text(
        json.dumps(
            node.settings
            | {
                "kubeReserved": RESERVED,
                "kubeReservedCgroup": f"{cgroups.path(top)}/kube",
                "enforceNodeAllocatable": ["pods", "kube-reserved"],
            }
        )
    )
    code, output = await node.run_to_end(f"--config={node.config}", "--hostname-override=node")
    assert code == 1
    said = output.replace('\\"', '"')
    assert f'Failed to enforce Kube Reserved Cgroup Limits on "{cgroups.path(top)}/kube": cgroup [' in said
    assert not cgroups.seems_to_exist(top.child("kube"))


async def test_the_agent_lives_in_its_cgroup(node, cgroups, top):
    def may_look_at_init() -> bool:
        try:
            Path("/proc/1/ns/pid").readlink()
        except PermissionError:
            return False
        return True

    if not may_look_at_init():
        pytest.skip("the pid namespace of process 1 cannot be seen: run the tests with CAP_SYS_PTRACE")
    async with node.run(kubeletCgroups=f"{cgroups.path(top)}/agent", oomScoreAdj=100) as agent:

        async def is_there() -> bool:
            return agent.process.pid in await cgroups.pids(top.child("agent"))

        await agent.until_recorded(is_there, what="the agent in its cgroup")


@pytest.mark.parametrize("number", NUMBERS)
async def test_killed_at_a_write_the_next_start_ends_in_the_same_values(node, manifest, cgroups, top, reserved, number):
    """With KLET_CGROUP_KILLS=60 the agent is killed at each of its first 60 changes of cgroups."""
    mounts = {Path("/sys/fs/cgroup")} if cgroups.mode.version == 2 else set(find_hierarchy()._mounts)
    below = [mount / cgroups.path(top).lstrip("/") for mount in sorted(mounts)]
    pod = manifest("web", main=FOREVER)
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "250m"}}
    node.write("web", pod)
    async with node.started(killed_before=number, below=below) as process:
        assert await process.wait() == -signal.SIGKILL
    async with node.run() as agent:
        await agent.recorded("web", "Ready")
        killed = await values_of(cgroups, top)
        await agent.kill()
    # One that nobody disturbs, on cgroups that were all removed meanwhile, ends in the same values.
    node.remove("web")
    async with node.run() as agent:
        await agent.until(lambda pods: not pods, what="no pods")
    for name in (top.child("kubepods"), reserved):
        await cgroups.kill_all(name)
        await cgroups.destroy(name)
    await cgroups.create(reserved, PLAIN)
    node.write("web", pod)
    async with node.run() as agent:
        await agent.recorded("web", "Ready")
        assert await values_of(cgroups, top) == killed
