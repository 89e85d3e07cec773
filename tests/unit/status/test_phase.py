"""The phase tables. R running, S exited 0, F exited 1, W waiting, WL0/WL1 waiting after an exit with that code."""

import pytest

from klet.api.container_status import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
)
from klet.api.pod import PodStatus
from klet.runtime.restart import restarts_after
from klet.status.phase import FAILED, PENDING, RUNNING, SUCCEEDED, compute_phase, is_coming
from klet.testing.builders import make_container, make_pod

RUN = ContainerState(running=ContainerStateRunning())
WAIT = ContainerState(waiting=ContainerStateWaiting(reason="ContainerCreating"))


def ended(code: int) -> ContainerState:
    return ContainerState(terminated=ContainerStateTerminated(exit_code=code))


STATES = {
    "R": {"state": RUN, "started": True},
    "r": {"state": RUN, "started": False},
    "S": {"state": ended(0)},
    "F": {"state": ended(1)},
    "W": {"state": WAIT},
    "none": {},
    "WL0": {"state": WAIT, "last_state": ended(0)},
    "WL1": {"state": WAIT, "last_state": ended(1)},
}


def statuses(**letters: str) -> tuple[ContainerStatus, ...]:
    return tuple(ContainerStatus(name=name, **STATES[letter]) for name, letter in letters.items())


def phase(pod, regular, init=None, *, terminal=False, initialized=False) -> str:
    return compute_phase(
        pod,
        statuses(**regular),
        statuses(**(init or {})),
        is_initialized=initialized,
        ends_here=terminal,
        restarts=lambda container, code: restarts_after(container, pod, code),
    )


@pytest.mark.parametrize(
    ("policy", "regular", "terminal", "want"),
    [
        pytest.param("Always", {}, False, PENDING, id="no statuses"),
        pytest.param("Always", {"A": "R", "B": "R"}, False, RUNNING, id="all run"),
        pytest.param("Always", {"A": "S", "B": "S"}, False, RUNNING, id="Always: all ended are restarted"),
        pytest.param("Always", {"A": "F", "B": "F"}, False, RUNNING, id="Always: all failed are restarted"),
        pytest.param("Always", {"A": "S", "B": "S"}, True, SUCCEEDED, id="Always, over: all ended well"),
        pytest.param("Always", {"A": "S", "B": "F"}, True, FAILED, id="Always, over: one failed"),
        pytest.param("Never", {"A": "S", "B": "S"}, False, SUCCEEDED, id="Never: all ended well"),
        pytest.param("Never", {"A": "F", "B": "F"}, False, FAILED, id="Never: all failed"),
        pytest.param("Never", {"A": "S", "B": "F"}, False, FAILED, id="Never: one failed"),
        pytest.param("OnFailure", {"A": "S", "B": "S"}, False, SUCCEEDED, id="OnFailure: all ended well"),
        pytest.param("OnFailure", {"A": "F", "B": "F"}, False, RUNNING, id="OnFailure: failures are restarted"),
        pytest.param("Never", {"A": "R", "B": "S"}, False, RUNNING, id="one runs, one ended"),
        pytest.param("Always", {"A": "R"}, False, PENDING, id="one has no status"),
        pytest.param("Always", {"A": "R", "B": "W"}, False, PENDING, id="one waits"),
        pytest.param("Always", {"A": "R", "B": "WL1"}, False, RUNNING, id="one waits to be restarted"),
        pytest.param("Never", {"A": "R", "B": "WL1"}, False, RUNNING, id="Never: one runs, one waits after its end"),
        pytest.param("Always", {"A": "R", "B": "F"}, False, RUNNING, id="Always: one runs, one failed"),
        pytest.param("OnFailure", {"A": "R", "B": "F"}, False, RUNNING, id="OnFailure: one runs, one failed"),
        pytest.param("Always", {"A": "F", "B": "F"}, True, FAILED, id="Always, over: all failed"),
        pytest.param("OnFailure", {"A": "S", "B": "F"}, False, RUNNING, id="OnFailure: one of two is restarted"),
        pytest.param("Never", {"A": "WL0", "B": "S"}, False, FAILED, id="what waits is not counted as succeeded"),
        pytest.param("Always", {"A": "none", "B": "R"}, False, PENDING, id="one of which nothing is known"),
    ],
)
def test_regular_containers(policy, regular, terminal, want):
    assert phase(make_pod("A", "B", restart_policy=policy), regular, terminal=terminal) == want


@pytest.mark.parametrize(
    ("policy", "init", "regular", "want"),
    [
        pytest.param("Always", {"X": "R"}, {}, PENDING, id="init runs"),
        pytest.param("Always", {"X": "F"}, {}, PENDING, id="init failed and is retried"),
        pytest.param("Always", {"X": "W"}, {}, PENDING, id="init waits"),
        pytest.param("Always", {"X": "WL1"}, {}, PENDING, id="init waits to be retried"),
        pytest.param("Never", {"X": "F"}, {}, FAILED, id="init failed for good"),
        pytest.param("Never", {"X": "WL1"}, {}, FAILED, id="init waits after its last failure"),
        pytest.param("Never", {"X": "WL0"}, {}, PENDING, id="init waits after a success"),
        pytest.param("Always", {"X": "S"}, {"A": "R", "B": "R"}, RUNNING, id="init done"),
        pytest.param("Always", {"X": "none"}, {}, PENDING, id="nothing is known of init"),
        pytest.param("OnFailure", {"X": "F"}, {}, PENDING, id="OnFailure: init failed and is retried"),
        pytest.param("Never", {"X": "S"}, {"A": "S", "B": "S"}, SUCCEEDED, id="init and all others done"),
    ],
)
def test_init_containers(policy, init, regular, want):
    assert phase(make_pod("A", "B", init=("X",), restart_policy=policy), regular, init) == want


@pytest.mark.parametrize(
    ("policy", "init", "regular", "extra", "want"),
    [
        pytest.param("Always", {"X": "r"}, {}, {}, PENDING, id="it runs but has not started"),
        pytest.param("Always", {"X": "R"}, {"A": "R"}, {}, PENDING, id="it started, a container has no status"),
        pytest.param("Always", {"X": "S"}, {"A": "R", "B": "R"}, {"initialized": True}, RUNNING, id="it stopped"),
        pytest.param("Always", {"X": "WL1"}, {"A": "R", "B": "R"}, {"initialized": True}, RUNNING, id="in back-off"),
        pytest.param("Always", {"X": "r"}, {"A": "R", "B": "R"}, {}, PENDING, id="not started in a new sandbox"),
        pytest.param("Always", {"X": "R"}, {"A": "R", "B": "R"}, {}, RUNNING, id="started in a new sandbox"),
        pytest.param("Always", {"X": "none"}, {"A": "R", "B": "R"}, {}, PENDING, id="nothing is known of it"),
        pytest.param("Always", {"X": "W"}, {"A": "R", "B": "R"}, {"initialized": True}, PENDING, id="it waits"),
        pytest.param("Always", {}, {"A": "R", "B": "R"}, {"initialized": True}, PENDING, id="it has no status"),
        pytest.param("Always", {"X": "S"}, {"A": "S", "B": "S"}, {"terminal": True}, SUCCEEDED, id="over, ended well"),
        pytest.param("Always", {"X": "F"}, {"A": "S", "B": "S"}, {"terminal": True}, SUCCEEDED, id="its exit is moot"),
        pytest.param("Never", {"X": "R"}, {"A": "S", "B": "S"}, {}, RUNNING, id="until it stops"),
        pytest.param("Never", {"X": "F"}, {"A": "S", "B": "S"}, {}, SUCCEEDED, id="Never: its failure is moot"),
        pytest.param("Never", {"X": "WL1"}, {"A": "S", "B": "S"}, {}, SUCCEEDED, id="Never: its back-off is moot"),
    ],
)
def test_sidecars(policy, init, regular, extra, want):
    pod = make_pod("A", "B", init=(make_container("X", restart_policy="Always"),), restart_policy=policy)
    assert phase(pod, regular, init, **extra) == want


@pytest.mark.parametrize(
    ("init", "regular", "initialized", "want"),
    [
        pytest.param({"X": "R", "Y": "r"}, {"A": "R"}, False, PENDING, id="plain one runs, container runs"),
        pytest.param({"X": "R", "Y": "r"}, {"A": "S"}, False, PENDING, id="plain one runs, container stopped"),
        pytest.param({"X": "S", "Y": "r"}, {"A": "S"}, False, PENDING, id="sidecar not started, not initialized"),
        pytest.param({"X": "S", "Y": "r"}, {"A": "S"}, True, RUNNING, id="sidecar not started, initialized"),
    ],
)
def test_plain_init_and_sidecar(init, regular, initialized, want):
    pod = make_pod("A", init=("X", make_container("Y", restart_policy="Always")))
    assert phase(pod, regular, init, initialized=initialized) == want


@pytest.mark.parametrize(
    ("pod_policy", "own", "regular", "want"),
    [
        pytest.param("Always", {"A": "Never"}, {"A": "F"}, FAILED, id="own Never"),
        pytest.param("Always", {"A": "OnFailure"}, {"A": "F"}, RUNNING, id="own OnFailure"),
        pytest.param("Always", {"A": "Always"}, {"A": "F"}, RUNNING, id="own Always"),
        pytest.param("Never", {"A": "Always", "B": None}, {"A": "S", "B": "F"}, RUNNING, id="one comes back"),
        pytest.param("Always", {"A": "Never", "B": "OnFailure"}, {"A": "F", "B": "S"}, FAILED, id="none comes back"),
        pytest.param("Always", {"A": "Never", "B": "OnFailure"}, {"A": "S", "B": "S"}, SUCCEEDED, id="all well"),
    ],
)
def test_container_policies(pod_policy, own, regular, want):
    pod = make_pod(*(make_container(n, restart_policy=p) for n, p in own.items()), restart_policy=pod_policy)
    assert phase(pod, regular) == want


@pytest.mark.parametrize(
    ("pod_policy", "own", "want"),
    [
        pytest.param("Always", "Never", FAILED, id="init with own Never"),
        pytest.param("Never", "OnFailure", PENDING, id="init with own OnFailure"),
        pytest.param("Never", "Always", PENDING, id="a sidecar is started again"),
    ],
)
def test_init_container_policies(pod_policy, own, want):
    pod = make_pod("A", init=(make_container("X", restart_policy=own),), restart_policy=pod_policy)
    assert phase(pod, {}, {"X": "F"}) == want


PULLS_IN_VAIN = ContainerState(waiting=ContainerStateWaiting(reason="ErrImagePull"))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(PodStatus(phase=PENDING), True, id="nothing is known yet"),
        pytest.param(PodStatus(phase=PENDING, container_statuses=statuses(a="W", b="W")), True, id="all are created"),
        pytest.param(PodStatus(phase=PENDING, container_statuses=statuses(a="W", b="R")), False, id="one runs"),
        pytest.param(PodStatus(phase=PENDING, init_container_statuses=statuses(a="S")), False, id="an init has ended"),
        pytest.param(
            PodStatus(phase=PENDING, container_statuses=(ContainerStatus(name="a", state=PULLS_IN_VAIN),)),
            False,
            id="an image does not come",
        ),
        pytest.param(PodStatus(phase=PENDING, reason="NodeAffinity"), False, id="there is a reason to report"),
        pytest.param(PodStatus(phase=RUNNING, container_statuses=statuses(a="R")), False, id="it runs"),
        pytest.param(PodStatus(phase=FAILED), False, id="it has ended"),
    ],
)
def test_is_coming(status, expected):
    assert is_coming(status) is expected


def gone(name: str) -> ContainerStatus:
    end = ContainerStateTerminated(exit_code=137, reason="RestartingAllContainers")
    return ContainerStatus(name=name, state=WAIT, last_state=ContainerState(terminated=end))


@pytest.mark.parametrize(
    ("is_on", "want"),
    [
        pytest.param(True, RUNNING, id="they come back, whatever their policy"),
        pytest.param(False, FAILED, id="without the gate an end is an end"),
    ],
)
def test_containers_that_were_removed_to_restart_together(is_on, want):
    pod = make_pod("A", init=("I",), restart_policy="Never")
    found = compute_phase(
        pod,
        (gone("A"),),
        (gone("I"),),
        is_initialized=False,
        ends_here=False,
        restarts=lambda container, code: restarts_after(container, pod, code),
        restart_all=is_on,
    )
    assert found == want
