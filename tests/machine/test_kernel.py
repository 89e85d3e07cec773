"""What a node asks of its kernel: tunables, swap, huge pages, pods killed for want of memory."""

import json

import pytest

from klet.testing.vm.node import KLET, UNIT, UPSTREAM, build_pod, is_ready

MEBIBYTE = 1 << 20
SWAP = 256 * MEBIBYTE
HUGE_PAGES = 16
TUNABLES = {"vm.overcommit_memory": "1", "vm.panic_on_oom": "0", "kernel.panic": "10", "kernel.panic_on_oops": "1"}


def read_tunable(node, name: str) -> str:
    return node.machine.output(f"sysctl -n {name}")


def container_file(node, pod, name: str) -> str:
    container = pod.status.container_statuses[0].container_id.removeprefix("containerd://")
    group = node.property("ControlGroup", unit=f"cri-containerd-{container}.scope")
    return node.machine.output(f"cat /sys/fs/cgroup{group}/{name}")


def ended(pod) -> tuple[str, int] | None:
    """How the container ended before it was started again."""
    statuses = pod.status.container_statuses or ()
    last = statuses[0].last_state.terminated if statuses else None
    return (last.reason, last.exit_code) if last else None


@pytest.mark.dozen
def test_the_agent_sets_the_tunables_that_upstream_sets(node, agent):
    node.stop()
    node.machine.run("sysctl -q vm.overcommit_memory=0 kernel.panic=0 kernel.panic_on_oops=0")
    node.start()
    if agent == UPSTREAM:  # it reports that it is ready before it looks at the kernel
        tests = " && ".join(f'test "$(sysctl -n {name})" = {value}' for name, value in TUNABLES.items())
        node.until_true(tests)
    assert {name: read_tunable(node, name) for name in TUNABLES} == TUNABLES


def test_protected_tunables_are_not_touched_but_demanded(node, agent):
    node.machine.run("sysctl -q vm.overcommit_memory=0")
    node.configure(protectKernelDefaults=True)
    before = node.now()
    done = node.machine.run(f"systemctl restart {UNIT}", check=False)
    if agent == UPSTREAM:  # likewise, and ends then
        node.until_true(f'test "$(systemctl show -P NRestarts {UNIT})" -gt 0')
    else:
        assert done.code != 0
    node.stop()
    assert "vm/overcommit_memory" in node.log(since=before).replace("vm.overcommit_memory", "vm/overcommit_memory")
    assert read_tunable(node, "vm.overcommit_memory") == "0"
    node.machine.run("sysctl -q " + " ".join(f"{name}={value}" for name, value in TUNABLES.items()))
    node.start(protectKernelDefaults=True)


@pytest.fixture
def swap(node):
    node.machine.run(f"fallocate -l {SWAP} /swap && chmod 600 /swap && mkswap -q /swap && swapon /swap")
    yield int(node.machine.output("awk '/SwapTotal/ {print $2}' /proc/meminfo")) * 1024
    node.remove_pods()
    node.stop()
    node.machine.run("swapoff /swap && rm /swap")


def test_swap_must_be_allowed(node, swap):
    node.configure()
    before = node.now()
    assert node.machine.run(f"systemctl restart {UNIT}", check=False).code != 0
    node.stop()
    assert "swap" in node.log(since=before)


def test_static_pods_never_swap(node, swap):
    # They count as critical; test_kubeadm.py has what a pod of a cluster gets.
    node.start(failSwapOn=False, memorySwap={"swapBehavior": "LimitedSwap"})
    node.apply(build_pod("burstable", resources={"requests": {"memory": "256Mi"}, "limits": {"memory": "512Mi"}}))
    pods = node.until_running("burstable")
    assert container_file(node, pods["burstable"], "memory.swap.max") == "0"


def test_without_swap_behaviour_no_container_swaps(node, swap):
    node.start(failSwapOn=False)
    node.apply(build_pod("burstable", resources={"requests": {"memory": "32Mi"}, "limits": {"memory": "64Mi"}}))
    pods = node.until_running("burstable")
    assert container_file(node, pods["burstable"], "memory.swap.max") == "0"


@pytest.mark.usefixtures("only_klet")
def test_a_node_that_swaps_warns_of_volumes_in_memory(node, swap):
    # This kernel (6.1) has no tmpfs without swap, which came with 6.4.
    node.start(failSwapOn=False)
    node.until_true(
        "curl -fsS --unix-socket /var/lib/kubelet/klet.sock http://agent/klet/v1/journal"
        " | grep -q PossibleMemoryBackedVolumesOnDisk"
    )


@pytest.mark.dozen
def test_huge_pages_are_given_to_pods(node):
    node.stop()
    node.machine.run(f"sysctl -q vm.nr_hugepages={HUGE_PAGES}")
    try:
        node.start()
        pod = build_pod(
            "huge",
            resources={"limits": {"hugepages-2Mi": "8Mi", "memory": "64Mi", "cpu": "100m"}},
            volumeMounts=[{"name": "pages", "mountPath": "/pages"}],
        )
        pod["spec"]["volumes"] = [{"name": "pages", "emptyDir": {"medium": "HugePages"}}]
        node.apply(pod)
        found = node.until_running("huge")["huge"]
        # On the pod: containerd's own default leaves the controller of huge pages alone on containers.
        unit = f"kubepods-pod{found.metadata.uid}.slice"
        group = node.property("ControlGroup", unit=unit)
        assert node.machine.output(f"cat /sys/fs/cgroup{group}/hugetlb.2MB.max") == str(8 * MEBIBYTE)
        process = container_file(node, found, "cgroup.procs").split()[0]
        mounts = node.machine.output(f"cat /proc/{process}/mounts")
        assert "/pages hugetlbfs rw" in mounts
        assert "pagesize=2M" in mounts
    finally:
        node.remove_pods()
        node.stop()
        node.machine.run("sysctl -q vm.nr_hugepages=0")


@pytest.mark.dozen
def test_a_container_that_takes_too_much_memory_is_killed_and_says_so(node, agent):
    node.start()
    pod = build_pod(
        "hungry", command="tail /dev/zero", resources={"requests": {"memory": "16Mi"}, "limits": {"memory": "16Mi"}}
    )
    node.apply(pod)
    # On a busy machine containerd hears of a kill only after the end of the container, and knows the reason later.
    node.until(lambda pods: "hungry" in pods and ended(pods["hungry"]) == ("OOMKilled", 137), what="hungry killed")
    assert "Memory cgroup out of memory" in node.machine.output("dmesg")
    if agent == KLET:  # it has read that, and says so on the pod
        journal = "curl -fsS --unix-socket /var/lib/kubelet/klet.sock http://agent/klet/v1/journal?decision=OOMKilling"
        found = json.loads(node.until_true(f"{journal} | grep -m 1 '(tail)'"))
        assert found["subject"]["container"] == "main"
        assert found["measurements"]["limit"] == 16 * MEBIBYTE


def test_safe_sysctls_are_set_in_the_pod_alone(node):
    node.start()
    pod = build_pod(
        "tuned", command="sysctl -n net.ipv4.ip_unprivileged_port_start >/dev/termination-log; sleep 100000"
    )
    pod["spec"]["securityContext"] = {"sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "80"}]}
    node.apply(pod)
    found = node.until_running("tuned")["tuned"]
    assert is_ready(found)
    process = container_file(node, found, "cgroup.procs").split()[0]
    inside = f"nsenter -t {process} -n sysctl -n net.ipv4.ip_unprivileged_port_start"
    assert node.machine.output(inside) == "80"
    assert read_tunable(node, "net.ipv4.ip_unprivileged_port_start") == "1024"
