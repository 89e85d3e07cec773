"""The systemd cgroup driver on cgroup version 2: slices and scopes as systemd sees them, limits as the kernel does."""

import pytest

from klet.testing.vm.node import build_pod

MEBIBYTE = 1 << 20
RESOURCES = {
    "guaranteed": {"limits": {"cpu": "250m", "memory": "64Mi"}, "requests": {"cpu": "250m", "memory": "64Mi"}},
    "burstable": {"limits": {"memory": "128Mi"}, "requests": {"cpu": "100m", "memory": "32Mi"}},
    "besteffort": {},
}
PIDS_LIMIT = 200
# kubelet: -997 for Guaranteed, 1000 for BestEffort, between them by the share of the memory that was requested.
GUARANTEED, BEST_EFFORT = -997, 1000


@pytest.fixture(scope="module")
def pods(installed):
    installed.start(podPidsLimit=PIDS_LIMIT)
    for name, resources in RESOURCES.items():
        installed.apply(build_pod(name, resources=resources))
    yield installed.until_running(*RESOURCES)
    installed.remove_pods()


def slice_of(pod, qos: str) -> str:
    uid = pod.metadata.annotations["kubernetes.io/config.hash"] if "-" not in pod.metadata.uid else pod.metadata.uid
    middle = "" if qos == "guaranteed" else f"{qos}-"
    return f"kubepods-{middle}pod{uid.replace('-', '_')}.slice"


def scope_of(pod) -> str:
    container = pod.status.container_statuses[0].container_id.removeprefix("containerd://")
    return f"cri-containerd-{container}.scope"


def cgroup(node, unit: str, name: str) -> str:
    return node.machine.output(f"cat /sys/fs/cgroup{node.property('ControlGroup', unit=unit)}/{name}")


@pytest.mark.dozen
@pytest.mark.parametrize("qos", RESOURCES)
def test_a_pod_is_a_slice_and_its_container_a_scope(installed, pods, qos):
    pod = pods[qos]
    above = "kubepods.slice" if qos == "guaranteed" else f"kubepods-{qos}.slice"
    assert installed.property("ActiveState", unit=slice_of(pod, qos)) == "active"
    assert installed.property("Slice", unit=slice_of(pod, qos)) == above
    assert installed.property("ActiveState", unit=scope_of(pod)) == "active"
    assert installed.property("Slice", unit=scope_of(pod)) == slice_of(pod, qos)


@pytest.mark.dozen
def test_systemd_knows_the_limits_of_a_pod(installed, pods):
    unit = slice_of(pods["guaranteed"], "guaranteed")
    assert installed.property("MemoryMax", unit=unit) == str(64 * MEBIBYTE)
    assert installed.property("CPUQuotaPerSecUSec", unit=unit) == "250ms"
    assert installed.property("TasksMax", unit=unit) == str(PIDS_LIMIT)


@pytest.mark.dozen
def test_limits_hold_after_systemd_has_read_its_units_again(installed, pods):
    unit = slice_of(pods["guaranteed"], "guaranteed")
    before = (
        cgroup(installed, unit, "cpu.max"),
        cgroup(installed, unit, "memory.max"),
        cgroup(installed, unit, "pids.max"),
    )
    installed.machine.run("systemctl daemon-reload")
    after = (
        cgroup(installed, unit, "cpu.max"),
        cgroup(installed, unit, "memory.max"),
        cgroup(installed, unit, "pids.max"),
    )
    assert before == after == ("25000 100000", str(64 * MEBIBYTE), str(PIDS_LIMIT))


@pytest.mark.dozen
def test_the_kernel_has_the_limits_of_containers(installed, pods):
    unit = scope_of(pods["guaranteed"])
    assert cgroup(installed, unit, "memory.max") == str(64 * MEBIBYTE)
    assert cgroup(installed, unit, "cpu.max") == "25000 100000"
    burstable = scope_of(pods["burstable"])
    assert cgroup(installed, burstable, "memory.max") == str(128 * MEBIBYTE)
    assert cgroup(installed, burstable, "cpu.max") == "max 100000"
    # 102 shares of version 1, on version 2's scale.
    assert cgroup(installed, burstable, "cpu.weight") == "4"
    assert cgroup(installed, scope_of(pods["besteffort"]), "memory.max") == "max"


@pytest.mark.dozen
def test_the_kernel_kills_pods_in_upstreams_order(installed, pods):
    total = int(installed.machine.output("awk '/MemTotal/ {print $2}' /proc/meminfo")) * 1024

    def score(name: str) -> int:
        procs = cgroup(installed, scope_of(pods[name]), "cgroup.procs").split()
        return int(installed.machine.output(f"cat /proc/{procs[0]}/oom_score_adj"))

    assert score("guaranteed") == GUARANTEED
    assert score("besteffort") == BEST_EFFORT
    assert score("burstable") == 1000 - (1000 * 32 * MEBIBYTE) // total
    agent = installed.property("MainPID")
    assert installed.machine.output(f"cat /proc/{agent}/oom_score_adj") == "-999"


def test_nothing_of_a_pod_is_left_when_it_is_gone(installed, pods):
    installed.apply(build_pod("short"))
    pod = installed.until_running("short")["short"]
    unit = slice_of(pod, "besteffort")
    assert installed.property("ActiveState", unit=unit) == "active"
    installed.withdraw("short")
    installed.until(lambda found: "short" not in found, what="short gone")
    installed.until_true(f"! systemctl is-active {unit} {scope_of(pod)}")
    assert installed.machine.output(f"systemctl list-units --all --no-legend {unit} {scope_of(pod)}") == ""
