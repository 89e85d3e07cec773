"""Node allocatable and the places of processes on a whole machine: systemd, cgroup version 2, every capability."""

import pytest

from klet.testing.vm.node import UNIT

MEBIBYTE = 1 << 20
RESERVED = 64 * MEBIBYTE
SLICE = "klettest.slice"
JOURNAL = "curl -fsS --unix-socket /var/lib/kubelet/klet.sock http://agent/klet/v1/journal"


def total_memory(node) -> int:
    return int(node.machine.output("awk '/MemTotal/ {print $2}' /proc/meminfo")) * 1024


def until_property(node, name: str, value: object, *, unit: str) -> None:
    node.until_true(f'test "$(systemctl show -P {name} {unit})" = {value}')


@pytest.fixture
def reserved(node):
    """A slice of the system, which is there before the agent."""
    node.machine.run(f"systemctl start {SLICE}")
    yield f"/{SLICE}"
    node.stop()
    node.machine.run(f"systemctl stop {SLICE} && systemctl revert {SLICE} && systemctl daemon-reload")


@pytest.mark.dozen
def test_all_pods_together_are_limited_to_what_is_not_reserved(node):
    node.start(systemReserved={"memory": "64Mi", "cpu": "100m", "pid": "100"})
    cpus = int(node.machine.output("nproc"))
    weight = 1 + ((cpus * 1000 - 100) * 1024 // 1000 - 2) * 9999 // 262142
    until_property(node, "MemoryMax", total_memory(node) - RESERVED, unit="kubepods.slice")
    until_property(node, "CPUWeight", weight, unit="kubepods.slice")
    processes = node.machine.output("cat /proc/sys/kernel/pid_max /proc/sys/kernel/threads-max")
    until_property(node, "TasksMax", min(map(int, processes.split())) - 100, unit="kubepods.slice")
    assert node.machine.output("cat /sys/fs/cgroup/kubepods.slice/cpuset.cpus") == node.machine.output(
        "cat /sys/devices/system/cpu/online"
    )
    node.machine.run("systemctl daemon-reload")
    limit = int(node.machine.output("cat /sys/fs/cgroup/kubepods.slice/memory.max"))
    assert limit == total_memory(node) - RESERVED


def test_what_is_not_enforced_leaves_pods_the_whole_machine(node):
    node.start(systemReserved={"memory": "64Mi"}, enforceNodeAllocatable=["none"])
    until_property(node, "MemoryMax", total_memory(node), unit="kubepods.slice")


@pytest.mark.dozen
def test_a_reserved_slice_gets_what_is_reserved(node, reserved):
    node.start(
        systemReserved={"memory": "64Mi", "cpu": "1"},
        systemReservedCgroup=reserved,
        enforceNodeAllocatable=["pods", "system-reserved"],
    )
    until_property(node, "MemoryMax", RESERVED, unit=SLICE)
    until_property(node, "CPUWeight", 39, unit=SLICE)


def test_only_its_cpu_if_that_is_what_is_enforced(node, reserved):
    node.start(
        kubeReserved={"memory": "64Mi", "cpu": "1"},
        kubeReservedCgroup=reserved,
        enforceNodeAllocatable=["pods", "kube-reserved-compressible"],
    )
    until_property(node, "CPUWeight", 39, unit=SLICE)
    assert node.property("MemoryMax", unit=SLICE) == "infinity"


def test_a_reserved_slice_that_is_not_there_ends_the_agent(node):
    node.configure(
        systemReserved={"memory": "64Mi"},
        systemReservedCgroup="/absent.slice",
        enforceNodeAllocatable=["pods", "system-reserved"],
    )
    before = node.now()
    node.machine.run(f"systemctl restart {UNIT}", check=False)
    node.until_true(f'test "$(systemctl show -P NRestarts {UNIT})" -gt 0')
    node.stop()
    said = node.log(since=before).replace('\\"', '"')
    assert 'Failed to enforce System Reserved Cgroup Limits on "/absent.slice": cgroup ["absent"]' in said
    assert node.machine.run("test -e /sys/fs/cgroup/absent.slice", check=False).code != 0


def test_the_agent_lives_in_its_cgroup_with_its_oom_score(node):
    node.start(kubeletCgroups="/agents_own", oomScoreAdj=-500)
    try:
        process = node.property("MainPID")
        node.until_true(f"grep -qx 0::/agents_own /proc/{process}/cgroup")
        node.until_true(f'test "$(cat /proc/{process}/oom_score_adj)" = -500')
        # What somebody else changes is put right within a minute.
        node.machine.run(f"echo {process} > /sys/fs/cgroup/system.slice/{UNIT}/cgroup.procs")
        node.machine.run(f"echo 0 > /proc/{process}/oom_score_adj")
        node.until_true(f"grep -qx 0::/agents_own /proc/{process}/cgroup")
        node.until_true(f'test "$(cat /proc/{process}/oom_score_adj)" = -500')
    finally:
        node.stop()
        node.machine.run("rmdir /sys/fs/cgroup/agents_own")


def test_processes_without_a_cgroup_are_moved_and_no_others(node):
    threads = "for pid in $(cat /sys/fs/cgroup/cgroup.procs); do test -e /proc/$pid/exe || echo $pid; done | wc -l"
    init = node.machine.output("cat /proc/1/cgroup")
    stray = node.machine.output(
        "nohup sleep 100000 > /dev/null 2>&1 & echo $! | tee /sys/fs/cgroup/cgroup.procs"
    ).strip()
    try:
        assert node.machine.output(f"cat /proc/{stray}/cgroup") == "0::/"
        node.start(systemCgroups="/system_processes", cgroupRoot="/")
        node.until_true(f"grep -qx 0::/system_processes /proc/{stray}/cgroup")
        assert node.machine.output("cat /proc/1/cgroup") == init
        assert int(node.machine.output(threads)) > 0
        assert node.machine.output(f"cat /proc/{node.property('MainPID')}/cgroup") == f"0::/system.slice/{UNIT}"
    finally:
        node.stop()
        node.machine.run(f"kill -KILL {stray}")
        node.machine.run("until rmdir /sys/fs/cgroup/system_processes; do sleep 0.2; done")


def test_what_others_change_in_a_class_is_written_again_within_a_minute(node, agent):
    node.start()
    node.stop()
    node.machine.run("systemctl set-property --runtime kubepods-burstable.slice CPUWeight=50")
    node.start()
    until_property(node, "CPUWeight", 1, unit="kubepods-besteffort.slice")
    if agent == "klet":
        # The first pass of the loop has written everything: a change from now on is somebody else's.
        node.until_true('test "$(cat /sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/cpu.weight)" = 1')
    node.machine.run("systemctl set-property --runtime kubepods-besteffort.slice CPUWeight=77")
    assert node.machine.output("cat /sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/cpu.weight") == "77"
    node.until_true('test "$(cat /sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/cpu.weight)" = 1')
    until_property(node, "CPUWeight", 1, unit="kubepods-besteffort.slice")
    if agent == "klet":
        repaired = node.until_true(f"{JOURNAL} | grep QosCgroupRepaired | tail -n 1")
        assert "CPU shares" in repaired
        assert "instead of 2" in repaired
