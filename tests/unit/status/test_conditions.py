"""The conditions a kubelet owns, rule by rule."""

import pytest
from msgspec.structs import replace

from klet.api.container import ContainerRestartRule, ContainerRestartRuleOnExitCodes
from klet.api.container_status import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
)
from klet.api.pod import Pod, PodCondition, PodReadinessGate, PodStatus
from klet.model.runtime import RuntimeContainerState
from klet.status.conditions import all_containers_restarting, containers_ready, initialized, is_readiness_stale, ready
from klet.testing.builders import make_container, make_pod, make_record, make_status

SIDECAR = make_container("side", restart_policy="Always")
POD = make_pod("a", "b", init=("setup", SIDECAR))
STATES = {
    "running": ContainerState(running=ContainerStateRunning()),
    "ended": ContainerState(terminated=ContainerStateTerminated(exit_code=0)),
    "waiting": ContainerState(waiting=ContainerStateWaiting()),
}


def statuses(*ready_names: str, unready: tuple[str, ...] = ()) -> tuple[ContainerStatus, ...]:
    known = [ContainerStatus(name=name, ready=True) for name in ready_names]
    return (*known, *(ContainerStatus(name=name, ready=False) for name in unready))


def reported(condition: PodCondition) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message


UNREADY = "containers with unready status: "
UNKNOWN = "containers with unknown status: "


@pytest.mark.parametrize(
    ("known", "phase", "expected"),
    [
        pytest.param((), "Running", ("False", "UnknownContainerStatuses", ""), id="nothing is known"),
        pytest.param((), "Failed", ("False", "UnknownContainerStatuses", ""), id="not even of a pod that failed"),
        pytest.param(statuses("side", "a", "b"), "Running", ("True", "", ""), id="all are ready"),
        pytest.param(
            statuses("a", "b", unready=("side",)),
            "Running",
            ("False", "ContainersNotReady", f"{UNREADY}[side]"),
            id="a sidecar counts",
        ),
        pytest.param(
            statuses("side", unready=("a", "b")),
            "Running",
            ("False", "ContainersNotReady", f"{UNREADY}[a b]"),
            id="names stand side by side",
        ),
        pytest.param(
            statuses(unready=("a", "side")),
            "Running",
            ("False", "ContainersNotReady", f"{UNKNOWN}[b], {UNREADY}[side a]"),
            id="unknown ones come first, sidecars before the others",
        ),
        pytest.param(
            statuses("side", "a", "b", unready=("setup",)), "Running", ("True", "", ""), id="a plain one does not count"
        ),
        pytest.param(
            statuses(unready=("side", "a", "b")), "Succeeded", ("False", "PodCompleted", ""), id="a pod that succeeded"
        ),
        pytest.param(
            statuses("side", "a"),
            "Succeeded",
            ("False", "ContainersNotReady", f"{UNKNOWN}[b]"),
            id="a pod that succeeded, of which something is unknown",
        ),
        pytest.param(statuses("side", "a"), "Failed", ("False", "PodFailed", ""), id="a pod that failed"),
        pytest.param(statuses("side", "a", "b"), "Failed", ("False", "PodFailed", ""), id="though all were ready"),
    ],
)
def test_containers_ready(known, phase, expected):
    assert reported(containers_ready(POD, known, phase)) == expected


def gates(*names: str) -> Pod:
    return replace(
        POD, spec=replace(POD.spec, readiness_gates=tuple(PodReadinessGate(condition_type=n) for n in names))
    )


ALL_READY = PodCondition(type="ContainersReady", status="True")
NOT_READY = PodCondition(type="ContainersReady", status="False", reason="ContainersNotReady", message="why")
OPEN = PodCondition(type="one", status="True")
CLOSED = PodCondition(type="two", status="Unknown")
MISSING_TWO = 'corresponding condition of pod readiness gate "two" does not exist.'
MISSING_ONE = 'corresponding condition of pod readiness gate "one" does not exist.'
CLOSED_TWO = 'the status of pod readiness gate "two" is not "True", but Unknown'


@pytest.mark.parametrize(
    ("pod", "containers", "others", "expected"),
    [
        pytest.param(POD, ALL_READY, (), ("True", "", ""), id="no gates"),
        pytest.param(POD, NOT_READY, (), ("False", "ContainersNotReady", "why"), id="as the containers say"),
        pytest.param(
            gates("one"), NOT_READY, (OPEN,), ("False", "ContainersNotReady", "why"), id="an open gate is moot"
        ),
        pytest.param(gates("one"), ALL_READY, (OPEN,), ("True", "", ""), id="an open gate"),
        pytest.param(
            gates("two"), ALL_READY, (OPEN,), ("False", "ReadinessGatesNotReady", MISSING_TWO), id="nobody opened it"
        ),
        pytest.param(
            gates("one", "two"),
            ALL_READY,
            (OPEN, CLOSED),
            ("False", "ReadinessGatesNotReady", CLOSED_TWO),
            id="one of two is closed",
        ),
        pytest.param(
            gates("one", "two"),
            ALL_READY,
            (CLOSED,),
            ("False", "ReadinessGatesNotReady", f"{MISSING_ONE}, {CLOSED_TWO}"),
            id="every closed gate is reported",
        ),
    ],
)
def test_ready(pod, containers, others, expected):
    assert reported(ready(pod, containers, others)) == expected


def init_status(name: str, *, is_ready: bool = False, started: bool | None = None) -> ContainerStatus:
    return ContainerStatus(name=name, ready=is_ready, started=started)


def regular(state: str) -> tuple[ContainerStatus, ...]:
    return (ContainerStatus(name="a", state=STATES[state]), ContainerStatus(name="b", state=STATES["waiting"]))


DONE = (init_status("setup", is_ready=True), init_status("side", started=True))
HALF = (init_status("setup", is_ready=True), init_status("side", started=False))
INCOMPLETE = "containers with incomplete status: "
WAITING = regular("waiting")


@pytest.mark.parametrize(
    ("known", "init", "phase", "expected"),
    [
        pytest.param((), (), "Pending", ("False", "UnknownContainerStatuses", ""), id="nothing is known"),
        pytest.param(WAITING, DONE, "Pending", ("True", "", ""), id="all have done their part"),
        pytest.param(
            WAITING,
            HALF,
            "Pending",
            ("False", "ContainersNotInitialized", f"{INCOMPLETE}[side]"),
            id="a sidecar starts",
        ),
        pytest.param(
            WAITING,
            (init_status("setup"), init_status("side", is_ready=True)),
            "Pending",
            ("False", "ContainersNotInitialized", f"{INCOMPLETE}[setup side]"),
            id="a plain one has to end, a sidecar to start",
        ),
        pytest.param(
            WAITING,
            (init_status("side"),),
            "Pending",
            ("False", "ContainersNotInitialized", f"{UNKNOWN}[setup], {INCOMPLETE}[side]"),
            id="one is unknown",
        ),
        pytest.param(
            WAITING, (), "Pending", ("False", "ContainersNotInitialized", f"{UNKNOWN}[setup side]"), id="both unknown"
        ),
        pytest.param(regular("running"), HALF, "Running", ("True", "", ""), id="what runs proves it"),
        pytest.param(regular("ended"), HALF, "Running", ("True", "", ""), id="so does what has run"),
        pytest.param(WAITING, HALF, "Succeeded", ("True", "PodCompleted", ""), id="a pod that succeeded"),
        pytest.param(
            WAITING,
            (init_status("setup", is_ready=True),),
            "Succeeded",
            ("False", "ContainersNotInitialized", f"{UNKNOWN}[side]"),
            id="a pod that succeeded, of which something is unknown",
        ),
        pytest.param(
            WAITING,
            HALF,
            "Failed",
            ("False", "ContainersNotInitialized", f"{INCOMPLETE}[side]"),
            id="a pod that failed before",
        ),
    ],
)
def test_initialized(known, init, phase, expected):
    assert reported(initialized(POD, known, init, phase)) == expected


def test_a_pod_without_init_containers_is_initialized():
    assert reported(initialized(make_pod("a"), (), (), "Pending")) == ("True", "", "")


def shown(status: str, message: str = "", *, gate: str = "True", containers: str = "a b") -> PodStatus:
    return PodStatus(
        phase="Running",
        conditions=(PodCondition(type="Ready", status=status, message=message), PodCondition(type="one", status=gate)),
        container_statuses=statuses(*containers.split()),
    )


PLAIN = make_pod("a", "b")
GATED = replace(PLAIN, spec=replace(PLAIN.spec, readiness_gates=(PodReadinessGate(condition_type="one"),)))
CLOSED_ONE = 'the status of pod readiness gate "one" is not "True", but False'


@pytest.mark.parametrize(
    ("pod", "status", "expected"),
    [
        pytest.param(PLAIN, shown("False"), False, id="a pod without gates is not looked at"),
        pytest.param(GATED, shown("True"), False, id="as it is reported"),
        pytest.param(GATED, shown("False", CLOSED_ONE), True, id="the gate was opened"),
        pytest.param(GATED, shown("True", gate="False"), True, id="the gate was closed"),
        pytest.param(GATED, shown("False", CLOSED_ONE, gate="False"), False, id="closed, as it is reported"),
        pytest.param(GATED, shown("False", "other", gate="False"), True, id="closed, reported in other words"),
        pytest.param(GATED, shown("True", containers="a"), True, id="a container that is not known"),
        pytest.param(GATED, shown("False", containers=""), False, id="nothing is known of the containers"),
        pytest.param(GATED, PodStatus(phase="Running"), False, id="nothing was reported yet"),
    ],
)
def test_whether_the_reported_readiness_is_stale(pod, status, expected):
    assert is_readiness_stale(replace(pod, status=status)) is expected


def asking_pod() -> Pod:
    codes = ContainerRestartRuleOnExitCodes(operator="In", values=(42,))
    rules = (ContainerRestartRule(action="RestartAllContainers", exit_codes=codes),)
    return make_pod(replace(make_container("a", restart_policy="Never"), restart_policy_rules=rules), "b")


STARTED = ("True", "RestartAllContainersStarted", "container exited with restart policy rule")
GOES_ON = PodStatus(conditions=(PodCondition(type="AllContainersRestarting", status="True"),))


@pytest.mark.parametrize(
    ("records", "previous", "phase", "expected"),
    [
        pytest.param([("a", 42)], PodStatus(), "Running", STARTED, id="the exit that asks for it"),
        pytest.param([("a", 1)], PodStatus(), "Running", ("False", "", ""), id="another exit"),
        pytest.param([("b", 0)], GOES_ON, "Running", STARTED, id="something is left"),
        pytest.param([], GOES_ON, "Running", ("False", "", ""), id="nothing is left"),
        pytest.param([("a", 42)], PodStatus(), "Failed", ("False", "PodFailed", ""), id="the pod has failed"),
        pytest.param([("a", 42)], GOES_ON, "Succeeded", ("False", "PodCompleted", ""), id="the pod has succeeded"),
    ],
)
def test_all_containers_restarting(records, previous, phase, expected):
    pod = asking_pod()
    ended = RuntimeContainerState.EXITED
    seen = make_status(pod, *(make_record(pod, name, ended, exit_code=code) for name, code in records))
    assert reported(all_containers_restarting(pod, seen, previous, phase)) == expected


def test_a_pod_stays_initialized_while_its_init_containers_run_again():
    pod = make_pod("a", init=("setup",))
    waiting = (ContainerStatus(name="setup", state=STATES["waiting"]),)
    assert reported(initialized(pod, (), waiting, "Pending", stays=True)) == ("True", "", "")
    assert reported(initialized(pod, (), waiting, "Pending"))[0] == "False"
