"""The agent as a unit of systemd: it says when it is ready, is watched, and comes back without touching its pods."""

import pytest

from klet.testing.vm.node import CONFIG, UNIT, build_pod

WATCHDOG = "/etc/systemd/system/kubelet.service.d/watchdog.conf"
WATCHDOG_SECONDS = 20
"""Long enough for an agent that is healthy on an emulated processor of a busy host."""


@pytest.fixture
def pod(node):
    node.start()
    node.apply(build_pod("steady"))
    return node.until_running("steady")["steady"]


def container_of(pod) -> tuple[str, int]:
    [status] = pod.status.container_statuses
    return status.container_id, status.restart_count


def until_again(node, process: str) -> None:
    """Wait until systemd has started another process and the agent in it is ready."""
    read = f"main=$(systemctl show -P MainPID {UNIT}); state=$(systemctl show -P ActiveState {UNIT})"
    node.until_true(f"{read}; test $main != 0 && test $main != {process} && test $state = active")


@pytest.mark.dozen
def test_the_unit_is_active_once_the_agent_is_ready(node):
    node.stop()
    node.start()
    assert node.property("Type") == "notify"
    assert node.property("ActiveState") == "active"
    assert node.machine.output("curl -fsS http://127.0.0.1:10248/healthz") == "ok"


@pytest.mark.dozen
def test_a_killed_agent_is_started_again_and_its_pods_do_not_notice(node, pod):
    before, process = container_of(pod), node.property("MainPID")
    node.machine.run(f"kill -KILL {process}")
    until_again(node, process)
    assert container_of(node.until_running("steady")["steady"]) == before


def test_an_agent_that_hangs_is_killed_by_the_watchdog(node, pod):
    before = container_of(pod)
    node.machine.write(WATCHDOG, f"[Service]\nWatchdogSec={WATCHDOG_SECONDS}\n")
    node.machine.run("systemctl daemon-reload")
    node.stop()
    try:
        node.start()
        process = node.property("MainPID")
        node.machine.run(f"kill -STOP {process}")
        until_again(node, process)
        assert "Watchdog timeout" in node.log()
        assert container_of(node.until_running("steady")["steady"]) == before
    finally:
        node.machine.run(f"rm {WATCHDOG} && systemctl daemon-reload")
        node.stop()


def test_the_watchdog_leaves_a_healthy_agent_alone(node, pod):
    node.machine.write(WATCHDOG, f"[Service]\nWatchdogSec={WATCHDOG_SECONDS}\n")
    node.machine.run("systemctl daemon-reload")
    node.stop()
    try:
        node.start()
        process = node.property("MainPID")
        first = int(node.property("WatchdogTimestampMonotonic"))
        # Two periods later it has reported in each.
        later = first + 2 * WATCHDOG_SECONDS * 1_000_000
        node.until_true(f'test "$(systemctl show -P WatchdogTimestampMonotonic {UNIT})" -gt {later}')
        assert node.property("MainPID") == process
        assert node.property("NRestarts") == "0"
    finally:
        node.machine.run(f"rm {WATCHDOG} && systemctl daemon-reload")
        node.stop()


def test_stopping_the_agent_leaves_its_pods_running(node, pod):
    before = container_of(pod)
    node.stop()
    assert node.property("Result") == "success"
    identifier = before[0].removeprefix("containerd://")
    assert node.property("ActiveState", unit=f"cri-containerd-{identifier}.scope") == "active"
    node.start()
    assert container_of(node.until_running("steady")["steady"]) == before


def test_a_restart_of_containerd_leaves_the_pods_running(node, pod):
    before = container_of(pod)
    node.machine.run("systemctl restart containerd")
    node.apply(build_pod("next"))
    pods = node.until_running("steady", "next")
    assert container_of(pods["steady"]) == before


@pytest.mark.dozen
def test_a_wrong_configuration_is_named_in_the_journal(node, agent):
    node.configure(maxPods="many")
    before = node.now()
    done = node.machine.run(f"systemctl restart {UNIT}", check=False)
    try:
        assert done.code != 0
        log = node.log(since=before)
        assert CONFIG in log
        assert "maxPods" in log
    finally:
        node.stop()
