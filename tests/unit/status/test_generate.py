from datetime import timedelta

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
from klet.api.handlers import Probe
from klet.api.pod import PodCondition, PodIP, PodReadinessGate, PodStatus
from klet.api.times import Time
from klet.model.allocation import PodResources, desired_allocation
from klet.model.features import PodFeatures
from klet.model.probes import ProbeKey, ProbeKind, ProbeResult
from klet.model.runtime import RuntimeContainerState as Seen
from klet.model.runtime import StartFailure
from klet.runtime.restart import restarts_after
from klet.status.board import StatusBoard
from klet.status.generate import DEADLINE_EXCEEDED, DEADLINE_MESSAGE, PodStatusInputs, generate_status
from klet.status.transitions import find_illegal_transition
from klet.testing.builders import NOW, make_container, make_pod, make_record, make_sandbox, make_status
from klet.testing.clock import ManualClock


def inputs(pod, **given) -> PodStatusInputs:
    made = {
        "previous": PodStatus(),
        "resources": PodResources(admitted=desired_allocation(pod)),
        "runtime_name": "containerd",
        "qos_class": "BestEffort",
        "restarts": lambda container, code: restarts_after(container, pod, code),
        "needs_sandbox": False,
    }
    return PodStatusInputs(**(made | given))


def condition(status: PodStatus, kind: str) -> PodCondition:
    return next(found for found in status.conditions if found.type == kind)


def test_a_running_pod_is_ready():
    pod = make_pod("main")
    status = generate_status(pod, make_status(pod, make_record(pod, "main")), inputs(pod))
    assert (status.phase, status.pod_ip, condition(status, "Ready").status) == ("Running", "10.1.0.5", "True")
    container = status.container_statuses[0]
    assert (container.container_id, container.ready, container.started) == ("containerd://main-0", True, True)
    assert container.state == ContainerState(running=ContainerStateRunning(started_at=Time.of(NOW)))


READY_TO_START = "PodReadyToStartContainers"


@pytest.mark.parametrize(
    ("is_on", "needs_sandbox", "expected"),
    [
        pytest.param(True, False, "True", id="a sandbox"),
        pytest.param(True, True, "False", id="none yet"),
        pytest.param(False, False, None, id="without its gate there is no such condition"),
    ],
)
def test_whether_containers_could_start(is_on, needs_sandbox, expected):
    pod = make_pod("main")
    given = inputs(pod, needs_sandbox=needs_sandbox, features=PodFeatures(ready_to_start=is_on))
    status = generate_status(pod, make_status(pod, make_record(pod, "main")), given)
    assert {each.type: each.status for each in status.conditions}.get(READY_TO_START) == expected


def test_without_the_gate_such_a_condition_is_somebody_elses():
    shown = PodCondition(type=READY_TO_START, status="False", reason="Other")
    pod = make_pod("main")
    pod = replace(pod, status=PodStatus(conditions=(shown,)))
    pod = replace(pod, spec=replace(pod.spec, readiness_gates=(PodReadinessGate(condition_type=READY_TO_START),)))
    given = inputs(pod, features=PodFeatures(ready_to_start=False))
    status = generate_status(pod, make_status(pod, make_record(pod, "main")), given)
    assert condition(status, READY_TO_START) == shown
    assert condition(status, "Ready").reason == "ReadinessGatesNotReady"


def test_a_pod_without_records_waits():
    pod = make_pod("main")
    status = generate_status(pod, make_status(pod, sandboxes=()), inputs(pod, needs_sandbox=True))
    assert status.phase == "Pending"
    assert status.container_statuses[0].state.waiting == ContainerStateWaiting(reason="ContainerCreating")
    ready = condition(status, "Ready")
    assert (ready.status, ready.reason, ready.message) == (
        "False",
        "ContainersNotReady",
        "containers with unready status: [main]",
    )
    assert condition(status, "PodReadyToStartContainers").status == "False"
    assert condition(status, "PodScheduled").status == "True"


def test_a_pod_with_init_containers_says_so():
    pod = make_pod("main", init=("setup",))
    status = generate_status(pod, make_status(pod), inputs(pod))
    assert status.container_statuses[0].state.waiting == ContainerStateWaiting(reason="PodInitializing")
    initialized = condition(status, "Initialized")
    assert (initialized.status, initialized.reason, initialized.message) == (
        "False",
        "ContainersNotInitialized",
        "containers with incomplete status: [setup]",
    )


def test_a_completed_init_container_is_ready_and_a_running_one_is_not():
    pod = make_pod("main", init=("one", "two"))
    seen = make_status(pod, make_record(pod, "one", Seen.EXITED), make_record(pod, "two"))
    status = generate_status(pod, seen, inputs(pod))
    assert [found.ready for found in status.init_container_statuses] == [True, False]


@pytest.mark.parametrize(
    ("result", "ready"),
    [
        pytest.param(None, False, id="not probed yet"),
        pytest.param(ProbeResult.FAILURE, False, id="failed"),
        pytest.param(ProbeResult.SUCCESS, True, id="passed"),
    ],
)
def test_readiness_follows_its_probe(result, ready):
    pod = make_pod(replace(make_container("main"), readiness_probe=Probe()))
    record = make_record(pod, "main")
    probes = {ProbeKey(record.id, ProbeKind.READINESS): result} if result else {}
    status = generate_status(pod, make_status(pod, record), inputs(pod, probes=probes))
    assert status.container_statuses[0].ready is ready


READY = PodStatus(conditions=(PodCondition(type="Ready", status="True"),))
RUNNING = ContainerState(running=ContainerStateRunning(started_at=Time.of(NOW)))
OTHER = replace(
    READY, container_statuses=(ContainerStatus(name="main", container_id="containerd://x", ready=True, state=RUNNING),)
)
AGENT_STARTED = NOW + timedelta(seconds=11)


@pytest.mark.parametrize(
    ("known", "given", "result", "ready"),
    [
        pytest.param(READY, {}, None, True, id="was ready, and no probe has answered yet"),
        pytest.param(READY, {}, ProbeResult.FAILURE, False, id="was ready, and the probe failed since"),
        pytest.param(PodStatus(), {}, None, False, id="was not known to be ready"),
        pytest.param(PodStatus(), {"previous": READY}, None, True, id="a pod without API status, reported as ready"),
        pytest.param(READY, {"previous": OTHER}, None, False, id="what was ready was the instance before"),
        pytest.param(READY, {"agent_started": NOW}, None, False, id="too young to have been probed before"),
        pytest.param(PodStatus(), {"probed": frozenset()}, None, False, id="nothing probes it yet, was not ready"),
    ],
)
def test_readiness_outlives_a_restart_of_the_agent(known, given, result, ready):
    pod = replace(make_pod(replace(make_container("main"), readiness_probe=Probe())), status=known)
    record = make_record(pod, "main")
    probes = {ProbeKey(record.id, ProbeKind.READINESS): result} if result else {}
    given = {"probes": probes, "agent_started": AGENT_STARTED} | given
    status = generate_status(pod, make_status(pod, record), inputs(pod, **given))
    assert status.container_statuses[0].ready is ready


def test_a_pod_without_a_live_sandbox_shows_the_addresses_it_had():
    pod = make_pod("main")
    previous = PodStatus(pod_ip="10.1.0.5", pod_ips=(PodIP(ip="10.1.0.5"),))
    dead = make_status(pod, sandboxes=[make_sandbox(ready=False)])
    assert generate_status(pod, dead, inputs(pod, previous=previous)).pod_ips == previous.pod_ips
    live = make_status(pod, sandboxes=[make_sandbox(ip="")])
    assert not generate_status(pod, live, inputs(pod, previous=previous)).pod_ips


@pytest.mark.parametrize(
    ("reported", "result", "started"),
    [
        pytest.param(None, None, False, id="nothing is known"),
        pytest.param("main-0", None, True, id="it was reported as started"),
        pytest.param("main-9", None, False, id="an earlier instance was reported as started"),
        pytest.param("main-0", ProbeResult.UNKNOWN, False, id="a result is newer than the report"),
        pytest.param(None, ProbeResult.SUCCESS, True, id="the probe passed"),
    ],
)
def test_started_follows_its_probe_and_what_was_reported(reported, result, started):
    pod = make_pod(replace(make_container("main"), startup_probe=Probe()))
    record = make_record(pod, "main")
    probes = {ProbeKey(record.id, ProbeKind.STARTUP): result} if result else {}
    before = ContainerStatus(name="main", container_id=f"containerd://{reported}", state=RUNNING, started=True)
    previous = PodStatus(container_statuses=(before,)) if reported else PodStatus()
    status = generate_status(pod, make_status(pod, record), inputs(pod, probes=probes, previous=previous))
    container = status.container_statuses[0]
    assert (container.started, container.ready) == (started, started)


@pytest.mark.parametrize(
    ("foreign", "status", "message"),
    [
        pytest.param((), "False", 'corresponding condition of pod readiness gate "gate" does not exist.', id="missing"),
        pytest.param(
            (PodCondition(type="gate", status="False"),),
            "False",
            'the status of pod readiness gate "gate" is not "True", but False',
            id="closed",
        ),
        pytest.param((PodCondition(type="gate", status="True"),), "True", "", id="open"),
    ],
)
def test_readiness_gates(foreign, status, message):
    pod = make_pod("main")
    pod = replace(
        pod,
        spec=replace(pod.spec, readiness_gates=(PodReadinessGate(condition_type="gate"),)),
        status=PodStatus(conditions=foreign),
    )
    ready = condition(generate_status(pod, make_status(pod, make_record(pod, "main")), inputs(pod)), "Ready")
    assert (ready.status, ready.message) == (status, message)


def test_the_second_newest_record_is_the_last_state():
    pod = make_pod("main")
    seen = make_status(
        pod, make_record(pod, "main", Seen.EXITED, exit_code=3), make_record(pod, "main", Seen.RUNNING, restarts=1)
    )
    container = generate_status(pod, seen, inputs(pod)).container_statuses[0]
    assert container.restart_count == 1
    assert container.last_state.terminated is not None
    assert container.last_state.terminated.exit_code == 3


def test_a_restart_count_never_falls():
    pod = make_pod("main")
    previous = PodStatus(container_statuses=(ContainerStatus(name="main", restart_count=3),))
    seen = make_status(pod, make_record(pod, "main", Seen.EXITED, exit_code=1, restarts=2))
    assert generate_status(pod, seen, inputs(pod, previous=previous)).container_statuses[0].restart_count == 3


def test_a_failed_start_is_shown_as_waiting():
    pod = make_pod("main")
    seen = make_status(pod, make_record(pod, "main", Seen.EXITED, exit_code=1))
    failure = StartFailure("CrashLoopBackOff", "back-off 10s")
    status = generate_status(
        pod, seen, inputs(pod, failures={"main": failure}, startable=frozenset({"main"}))
    ).container_statuses[0]
    assert status.state.waiting == ContainerStateWaiting(reason="CrashLoopBackOff", message="back-off 10s")
    assert status.last_state.terminated is not None
    assert status.last_state.terminated.exit_code == 1


@pytest.mark.parametrize(
    ("policy", "is_reported", "phase"),
    [
        pytest.param("OnFailure", False, "Succeeded", id="it had ended for good"),
        pytest.param("Always", True, "Running", id="it is always started again"),
    ],
)
def test_an_init_container_that_waits_in_a_new_sandbox(policy, is_reported, phase):
    """Its record went with the old sandbox, and a status that takes a last end back is refused."""
    pod = make_pod("main", init=("setup",), restart_policy=policy)
    end = ContainerState(terminated=ContainerStateTerminated(exit_code=0))
    previous = PodStatus(
        phase="Running",
        init_container_statuses=(ContainerStatus(name="setup", state=end),),
        container_statuses=(ContainerStatus(name="main", state=RUNNING),),
    )
    seen = make_status(pod, make_record(pod, "main", Seen.EXITED, exit_code=0))
    failures = {"setup": StartFailure("CrashLoopBackOff", "back-off 10s")}
    given = inputs(pod, previous=previous, failures=failures, startable=frozenset({"setup"}))
    status = generate_status(pod, seen, given)
    assert (status.init_container_statuses[0].state.waiting is not None) is is_reported
    assert (find_illegal_transition(pod, previous, status, given.restarts), status.phase) == (None, phase)


RUNNING = ContainerState(running=ContainerStateRunning())
LOST = "The container could not be located when the pod was deleted.  The container used to be Running"


@pytest.mark.parametrize(
    ("deleted", "previous", "restarts", "lost"),
    [
        pytest.param(True, ContainerStatus(name="main", state=RUNNING), 0, True, id="a deleted pod lost it"),
        pytest.param(False, ContainerStatus(name="main", state=RUNNING), 1, True, id="a live pod lost it"),
    ],
)
def test_a_container_that_vanished(deleted, previous, restarts, lost):
    pod = make_pod("main", deleted=deleted)
    status = generate_status(
        pod, make_status(pod, sandboxes=()), inputs(pod, previous=PodStatus(container_statuses=(previous,)))
    ).container_statuses[0]
    assert status.restart_count == restarts
    assert status.last_state.terminated == ContainerStateTerminated(
        exit_code=137, reason="ContainerStatusUnknown", message=LOST
    )


def test_a_terminated_status_outlives_its_record():
    pod = make_pod("main", restart_policy="Never")
    previous = ContainerStatus(
        name="main", restart_count=5, state=ContainerState(terminated=ContainerStateTerminated(exit_code=2))
    )
    status = generate_status(
        pod, make_status(pod, sandboxes=()), inputs(pod, previous=PodStatus(container_statuses=(previous,)))
    ).container_statuses[0]
    assert (status.restart_count, status.state) == (5, previous.state)


def test_a_terminal_phase_stays():
    pod = make_pod("main")
    status = generate_status(
        pod,
        make_status(pod, make_record(pod, "main")),
        inputs(pod, previous=PodStatus(phase="Failed", reason="Evicted")),
    )
    assert (status.phase, status.reason) == ("Failed", "Evicted")
    assert condition(status, "Ready").reason == "PodFailed"


@pytest.mark.parametrize(
    ("api_phase", "expected"),
    [
        pytest.param("Running", ("Failed", DEADLINE_EXCEEDED, DEADLINE_MESSAGE), id="its time is up"),
        pytest.param("Succeeded", ("Succeeded", "", ""), id="it was over before"),
    ],
)
def test_a_pod_whose_time_is_up(api_phase, expected):
    pod = make_pod("main")
    pod = replace(pod, status=PodStatus(phase=api_phase))
    status = generate_status(pod, make_status(pod, make_record(pod, "main")), inputs(pod, is_overdue=True))
    assert (status.phase, status.reason, status.message) == expected
    assert condition(status, "Ready").status == "False"


def test_why_the_node_disturbed_a_pod_stays_in_the_place_of_what_others_say():
    gate, old, new = (
        PodCondition(type=kind, status="True", reason=reason)
        for kind, reason in (("gate", ""), ("DisruptionTarget", "Theirs"), ("DisruptionTarget", "TerminationByKubelet"))
    )
    pod = make_pod("main")
    pod = replace(pod, status=PodStatus(conditions=(old, gate)))
    given = inputs(pod, previous=PodStatus(conditions=(new,)))
    status = generate_status(pod, make_status(pod, make_record(pod, "main")), given)
    assert status.conditions[:2] == (new, gate)


@pytest.mark.parametrize(
    ("host_network", "seen", "host", "pod_ips"),
    [
        pytest.param(False, ("10.1.0.5",), ("192.168.0.1",), ("10.1.0.5",), id="a pod with a network of its own"),
        pytest.param(False, (), ("192.168.0.1",), (), id="one that has no address yet"),
        pytest.param(True, (), (), (), id="nothing is known of the node"),
        pytest.param(True, (), ("192.168.0.1",), ("192.168.0.1",), id="the node's address"),
        pytest.param(True, (), ("192.168.0.1", "fd00::1"), ("192.168.0.1", "fd00::1"), id="both families"),
        pytest.param(True, ("10.1.0.5",), ("192.168.0.1",), ("10.1.0.5",), id="an address that is set stays"),
        pytest.param(
            True, ("192.168.0.1",), ("192.168.0.1", "fd00::1"), ("192.168.0.1", "fd00::1"), id="the second one may come"
        ),
        pytest.param(
            True, ("fd00::9",), ("192.168.0.1", "fd00::1"), ("fd00::9",), id="but not another of the same family"
        ),
    ],
)
def test_addresses_of_the_node(host_network, seen, host, pod_ips):
    pod = make_pod("main")
    pod = replace(pod, spec=replace(pod.spec, host_network=host_network))
    status = generate_status(pod, make_status(pod).with_ips(seen), inputs(pod, host_ips=host))
    assert tuple(each.ip for each in status.pod_ips) == pod_ips
    assert status.pod_ip == (pod_ips[0] if pod_ips else "")
    assert (status.host_ip, tuple(each.ip for each in status.host_ips)) == (host[0] if host else "", host)


RAN = ContainerStatus(name="main", state=ContainerState(running=ContainerStateRunning()))


@pytest.mark.parametrize(
    ("pod", "previous", "ends_here", "phase", "reasons"),
    [
        pytest.param(
            make_pod("main", deleted=True),
            PodStatus(phase="Running", container_statuses=(RAN,)),
            True,
            "Failed",
            {"Ready": "PodFailed", "ContainersReady": "PodFailed"},
            id="it was deleted, and will not run again",
        ),
        pytest.param(
            make_pod("main", deleted=True),
            PodStatus(phase="Running", container_statuses=(RAN,)),
            False,
            "Running",
            {"Ready": "ContainersNotReady", "ContainersReady": "ContainersNotReady"},
            id="it may run again",
        ),
        pytest.param(
            replace(make_pod("main"), status=PodStatus(phase="Succeeded")),
            PodStatus(phase="Succeeded", container_statuses=(RAN,)),
            False,
            "Succeeded",
            {"Initialized": "PodCompleted", "Ready": "PodCompleted", "ContainersReady": "PodCompleted"},
            id="the API says that it succeeded",
        ),
        pytest.param(
            make_pod("main"),
            PodStatus(phase="Running", container_statuses=(ContainerStatus(name="main"),)),
            False,
            "Pending",
            {"Ready": "ContainersNotReady", "ContainersReady": "ContainersNotReady"},
            id="a pod that ran may wait again",
        ),
    ],
)
def test_a_pod_whose_containers_vanished(pod, previous, ends_here, phase, reasons):
    given = inputs(pod, previous=previous, ends_here=ends_here, needs_sandbox=True)
    status = generate_status(pod, make_status(pod, sandboxes=()), given)
    assert status.phase == phase
    assert {each.type: each.reason for each in status.conditions if each.reason} == reasons


@pytest.mark.parametrize(
    ("phase", "previous_reason", "known", "expected"),
    [
        pytest.param("Running", ("Why", "so"), ("", ""), ("Why", "so"), id="kept while the phase stays"),
        pytest.param("Pending", ("Why", "so"), ("", ""), ("", ""), id="gone when it changes"),
        pytest.param("Running", ("", ""), ("Api", "said"), ("Api", "said"), id="what the API knows fills in"),
        pytest.param("Running", ("Why", ""), ("Api", "said"), ("Why", "said"), id="each for itself"),
        pytest.param("Pending", ("", ""), ("Api", "said"), ("", ""), id="not after a change"),
    ],
)
def test_reason_and_message_of_a_phase(phase, previous_reason, known, expected):
    pod = replace(make_pod("main"), status=PodStatus(phase="Running", reason=known[0], message=known[1]))
    previous = PodStatus(phase=phase, reason=previous_reason[0], message=previous_reason[1])
    status = generate_status(pod, make_status(pod, make_record(pod, "main")), inputs(pod, previous=previous))
    assert (status.phase, status.reason, status.message) == ("Running", *expected)


@pytest.mark.parametrize(
    ("source", "expected"),
    [pytest.param("", "Failed", id="a pod of the API"), pytest.param("file", "Running", id="a static pod goes on")],
)
def test_an_end_is_final_unless_the_pod_is_static(source, expected):
    pod = make_pod("main", source=source)
    seen = make_status(pod, make_record(pod, "main", Seen.EXITED, exit_code=1))
    assert generate_status(pod, seen, inputs(pod, ends_here=True)).phase == expected


def test_every_condition_says_which_generation_it_is_of():
    pod = make_pod("main")
    pod = replace(pod, metadata=replace(pod.metadata, generation=7))
    status = generate_status(pod, make_status(pod, make_record(pod, "main")), inputs(pod))
    assert {each.type: each.observed_generation for each in status.conditions} == dict.fromkeys(
        ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"), 7
    )
    assert status.observed_generation == 7


def test_a_readiness_gate_may_name_a_condition_of_the_node():
    pod = make_pod("main")
    gate = PodReadinessGate(condition_type="PodReadyToStartContainers")
    pod = replace(pod, spec=replace(pod.spec, readiness_gates=(gate,)))
    status = generate_status(pod, make_status(pod, make_record(pod, "main")), inputs(pod))
    assert condition(status, "Ready").status == "True"


class TestBoard:
    def test_transition_times_move_only_with_the_status(self):
        clock = ManualClock()
        board = StatusBoard(clock=clock)
        pod = make_pod("main")
        waiting = generate_status(pod, make_status(pod, sandboxes=()), inputs(pod))
        running = generate_status(pod, make_status(pod, make_record(pod, "main")), inputs(pod))
        assert board.put("uid-1", waiting)
        first = board.get("uid-1")
        clock.advance(timedelta(minutes=1))
        assert not board.put("uid-1", waiting)
        assert board.put("uid-1", running)
        second = board.get("uid-1")
        assert second.start_time == first.start_time
        assert condition(second, "Ready").last_transition_time > condition(first, "Ready").last_transition_time
        scheduled = [condition(status, "PodScheduled").last_transition_time for status in (first, second)]
        assert scheduled[0] == scheduled[1]

    def test_what_an_earlier_life_reported_counts_until_this_one_reports(self):
        clock = ManualClock()
        pod = make_pod("main")
        earlier = StatusBoard(clock=clock)
        running = generate_status(pod, make_status(pod, make_record(pod, "main")), inputs(pod))
        earlier.put("uid-1", running)
        clock.advance(timedelta(minutes=1))
        board = StatusBoard(clock=clock, restored=earlier.all())
        assert board.get("uid-1") == earlier.get("uid-1")
        assert not board.is_reported("uid-1")
        assert board.put("uid-1", running)
        assert board.is_reported("uid-1")
        assert board.all() == earlier.all()
        board.forget("uid-1")
        assert board.get("uid-1") is None

    def test_instants_go_on_from_the_status_that_is_given(self):
        clock = ManualClock()
        pod = make_pod("main")
        board = StatusBoard(clock=clock)
        running = generate_status(pod, make_status(pod, make_record(pod, "main")), inputs(pod))
        board.put("uid-1", running)
        known = board.get("uid-1")
        clock.advance(timedelta(minutes=1))
        later = StatusBoard(clock=clock)
        later.put("uid-1", running, previous=known)
        assert later.get("uid-1") == known

    async def test_subscribers_are_notified_of_changes_only(self):
        board = StatusBoard(clock=ManualClock())
        pod = make_pod("main")
        status = generate_status(pod, make_status(pod), inputs(pod))
        with board.changes() as changes:
            board.put("uid-1", status)
            board.put("uid-1", status)
            board.forget("uid-1")
            assert changes.drain() == ["uid-1", "uid-1"]


def test_a_condition_of_a_gate_that_is_off_stays_as_it_is():
    """Whoever wrote it: an agent with the gate, which was switched off since then."""
    shown = PodCondition(type="AllContainersRestarting", status="True", reason="RestartAllContainersStarted")
    codes = ContainerRestartRuleOnExitCodes(operator="In", values=(42,))
    rules = (ContainerRestartRule(action="RestartAllContainers", exit_codes=codes),)
    main = replace(make_container("main", restart_policy="Never"), restart_policy_rules=rules)
    pod = replace(make_pod(main), status=PodStatus(phase="Running", conditions=(shown,)))
    seen = make_status(pod, make_record(pod, "main"))
    assert condition(generate_status(pod, seen, inputs(pod, previous=pod.status)), shown.type) == shown
    ruled = generate_status(pod, seen, inputs(pod, previous=PodStatus(), features=PodFeatures(restart_all=True)))
    assert condition(ruled, shown.type) == PodCondition(type=shown.type, status="False")
    plain = generate_status(make_pod("main"), seen, inputs(pod, features=PodFeatures(restart_all=True)))
    assert shown.type not in {each.type for each in plain.conditions}
