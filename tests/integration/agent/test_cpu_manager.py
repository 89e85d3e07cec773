"""CPUs of their own on a real runtime: the cpuset files, and where processes really may run."""

import os
from pathlib import Path

import pytest

from klet.checkpoint.upstream import CpuManagerFormat
from klet.host.cgroups.layout import CgroupMode
from klet.host.cgroups.names import parse_cgroupfs
from klet.host.cpulist import format_cpu_list
from klet.host.machine.reader import MachineReader

FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"
BUSY = "trap 'kill $!; exit 0' TERM; (while true; do :; done) & wait"
ONLINE = MachineReader().online_cpus()
OWN = max(ONLINE)
REST = format_cpu_list(ONLINE - {OWN})
STATIC = {
    "cpuManagerPolicy": "static",
    "cpuManagerReconcilePeriod": "1s",
    "reservedSystemCPUs": REST,
}
"""One CPU is left that a container can have alone."""
pytestmark = pytest.mark.skipif(
    len(ONLINE & os.sched_getaffinity(0)) < 2, reason="a second CPU: impossible on a machine that has only one"
)


class Place:
    """Where a container is: its cgroup and its processes."""

    def __init__(self, cgroups, name) -> None:
        self._cgroups = cgroups
        self._name = name

    @property
    def cpuset(self) -> str:
        return self._file("cpuset", "cpuset.cpus")

    @property
    def quota(self) -> str:
        if self._cgroups.mode is CgroupMode.UNIFIED:
            return self._file("", "cpu.max").split()[0].replace("max", "-1")
        return self._file("cpu", "cpu.cfs_quota_us")

    async def allowed(self) -> set[str]:
        """The CPUs that the kernel lets its processes run on."""
        return {allowed_cpus(pid) for pid in await self._cgroups.pids(self._name)}

    async def busy_cpus(self) -> set[int]:
        """The CPUs that its busy processes are on. One that sleeps is moved when it wakes."""
        return {cpu for pid in await self._cgroups.pids(self._name) if (cpu := busy_cpu(pid)) is not None}

    def _file(self, controller: str, name: str) -> str:
        root = Path("/sys/fs/cgroup")
        if self._cgroups.mode is not CgroupMode.UNIFIED:
            root /= controller
        return (root / self._cgroups.path(self._name).lstrip("/") / name).read_text().strip()


def allowed_cpus(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text().partition("Cpus_allowed_list:")[2].split()[0]


def busy_cpu(pid: int) -> int | None:
    state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[35]) if state == "R" else None


async def place_of(agent, node, cgroups, name: str, *, qos: str = "") -> Place:
    pod = await agent.pod(name)
    container_id = pod.status.container_statuses[0].container_id.removeprefix("containerd://")
    above = parse_cgroupfs(node.settings["cgroupRoot"]).child("kubepods", *([qos] if qos else []))
    return Place(cgroups, above.child(f"pod{pod.metadata.uid}").child(container_id))


def exclusive(manifest: dict) -> dict:
    """The pod with one CPU for its container alone."""
    for container in manifest["spec"]["containers"]:
        amounts = {"cpu": "1", "memory": "64Mi"}
        container["resources"] = {"requests": amounts, "limits": amounts}
    return manifest


def saved(node) -> dict[str, dict[str, str]]:
    return CpuManagerFormat().decode((node.root / "cpu_manager_state").read_bytes()).entries


async def test_a_container_has_a_cpu_alone_and_others_stay_off_it(node, manifest, cgroups):
    async with node.run(**STATIC) as agent:
        node.write("shared", manifest("shared", main=BUSY))
        await agent.recorded("shared", "Ready")
        shared = await place_of(agent, node, cgroups, "shared", qos="besteffort")
        assert shared.cpuset == format_cpu_list(ONLINE)
        node.write("own", exclusive(manifest("own", main=FOREVER)))
        (given, _) = await agent.recorded("own", "ExclusiveCpus", "Ready")
        assert given["measurements"]["cpus"] == f"{OWN}"
        (moved,) = await agent.recorded("shared", "CpusChanged")
        assert moved["measurements"]["cpus"] == REST
        own = await place_of(agent, node, cgroups, "own")
        assert (own.cpuset, await own.allowed(), own.quota) == (f"{OWN}", {f"{OWN}"}, "-1")
        # Its processes are busy all the time, and yet never on the CPU of the other.
        assert (shared.cpuset, await shared.allowed()) == (REST, {REST})
        busy = await shared.busy_cpus()
        assert busy
        assert OWN not in busy
        node.write("late", manifest("late", main=FOREVER))
        await agent.recorded("late", "Ready")
        late = await place_of(agent, node, cgroups, "late", qos="besteffort")
        assert (late.cpuset, await late.allowed()) == (REST, {REST})
        assert f"CPUs {OWN} for this container alone" in await agent.text("/klet/v1/journal?name=own-node")
        assert saved(node) == {(await agent.pod("own")).metadata.uid: {"main": f"{OWN}"}}
        node.remove("own")
        await agent.recorded("shared", "CpusChanged", "CpusChanged")
        assert shared.cpuset == format_cpu_list(ONLINE)
        assert saved(node) == {}


async def test_a_restart_reassigns_nothing(node, manifest, cgroups):
    async with node.run(**STATIC) as agent:
        node.write("own", exclusive(manifest("own", main=FOREVER)))
        await agent.recorded("own", "ExclusiveCpus", "Ready")
        uid = (await agent.pod("own")).metadata.uid
        before = (node.root / "cpu_manager_state").read_bytes()
        await agent.kill()
    async with node.run(**STATIC) as agent:
        await agent.recorded("own", "Adopted")
        node.write("second", exclusive(manifest("second", main=FOREVER)))
        await agent.recorded("second", "UnexpectedAdmissionError")
        own = await place_of(agent, node, cgroups, "own")
        assert (own.cpuset, await own.allowed()) == (f"{OWN}", {f"{OWN}"})
        assert saved(node) == {uid: {"main": f"{OWN}"}}
        assert (node.root / "cpu_manager_state").read_bytes() == before


async def test_another_policy_than_before_is_refused(node, manifest):
    async with node.run(**STATIC) as agent:
        node.write("own", exclusive(manifest("own", main=FOREVER)))
        await agent.recorded("own", "ExclusiveCpus", "Ready")
        await agent.stop()
    before = (node.root / "cpu_manager_state").read_bytes()
    async with node.started() as process:
        assert await process.wait() == 1
    refused = 'configured policy \\"none\\" differs from state checkpoint policy \\"static\\", please drain this node'
    assert refused in node.log.read_text()
    assert (node.root / "cpu_manager_state").read_bytes() == before
