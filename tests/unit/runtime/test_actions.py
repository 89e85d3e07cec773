"""The action tables: what one sync of a pod does, for every state of its sandbox and containers."""

from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.container import ContainerRestartRule, ContainerRestartRuleOnExitCodes, EphemeralContainer
from klet.api.handlers import Probe
from klet.api.pod import Pod
from klet.model.probes import ProbeKey, ProbeKind, ProbeResult
from klet.model.runtime import ContainerId, PodRuntimeStatus, RuntimeContainerState
from klet.runtime.actions import PodActions, SandboxPlan, compute_pod_actions, plan_sandbox
from klet.testing.builders import NOW, make_container, make_pod, make_record, make_sandbox, make_status

RUNNING = RuntimeContainerState.RUNNING
EXITED = RuntimeContainerState.EXITED
CREATED = RuntimeContainerState.CREATED
UNKNOWN = RuntimeContainerState.UNKNOWN
SUCCESS, FAILURE, UNSURE = ProbeResult.SUCCESS, ProbeResult.FAILURE, ProbeResult.UNKNOWN
DEAD = make_sandbox(ready=False)


@dataclass(frozen=True)
class Want:
    """What the tables show of the actions: K and C, the attempt, what starts and what is killed."""

    kill_pod: bool = False
    create: bool = False
    attempt: int = 0
    init: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    ephemeral: tuple[int, ...] = ()
    kill: tuple[str, ...] = field(default=())


def shown(actions: PodActions) -> Want:
    return Want(
        kill_pod=actions.kill_pod,
        create=actions.create_sandbox,
        attempt=actions.attempt,
        init=actions.start_init,
        start=actions.start,
        ephemeral=actions.start_ephemeral,
        kill=tuple(kill.name for kill in actions.kill),
    )


def regular(policy: str = "Always", **states) -> tuple[Pod, PodRuntimeStatus]:
    """Containers foo1..3, running unless said: a state, an exit code, or None for no record."""
    sandboxes = states.pop("sandboxes", None)
    pod = make_pod("foo1", "foo2", "foo3", restart_policy=policy)
    return pod, make_status(pod, *_records(pod, ("foo1", "foo2", "foo3"), states, RUNNING), sandboxes=sandboxes)


def init(policy: str = "Always", **states) -> tuple[Pod, PodRuntimeStatus]:
    """Init containers init1..3, exited 0 unless said, and no regular container yet."""
    sandboxes = states.pop("sandboxes", None)
    pod = make_pod("foo1", "foo2", "foo3", init=("init1", "init2", "init3"), restart_policy=policy)
    return pod, make_status(pod, *_records(pod, ("init1", "init2", "init3"), states, 0), sandboxes=sandboxes)


def sidecars(policy: str = "Always", *, probe: str = "", **states) -> tuple[Pod, PodRuntimeStatus]:
    """Sidecars init1..3, running unless said; regular containers only where given."""
    made = [make_container(f"init{n}", restart_policy="Always") for n in (1, 2, 3)]
    if probe:
        made = [replace(container, **{probe: Probe()}) for container in made]
    pod = make_pod("foo1", "foo2", "foo3", init=made, restart_policy=policy)
    records = _records(pod, ("init1", "init2", "init3"), states, RUNNING)
    records += _records(pod, [name for name in states if name.startswith("foo")], states, RUNNING)
    return pod, make_status(pod, *records)


def _records(pod, names, states, default):
    made = []
    for name in names:
        state = states.get(name, default)
        if isinstance(state, int):
            made.append(make_record(pod, name, EXITED, exit_code=state))
        elif state == "changed":
            made.append(make_record(pod, name, RUNNING, spec_hash=1))
        elif state is not None:
            made.append(make_record(pod, name, state))
    return made


ALL_GOOD = Want()
NO_RUN = {"foo1": None, "foo2": None, "foo3": None}
NO_INIT = {"init1": None, "init2": None, "init3": None}
ALL_DONE = {"foo1": 0, "foo2": 0, "foo3": 0}


@pytest.mark.parametrize(
    ("case", "want"),
    [
        pytest.param(regular(), ALL_GOOD, id="all good"),
        pytest.param(
            regular(sandboxes=(), **NO_RUN), Want(kill_pod=True, create=True, start=(0, 1, 2)), id="nothing exists yet"
        ),
        pytest.param(regular(foo1=0, foo2=111), Want(start=(0, 1)), id="Always restarts both exits"),
        pytest.param(regular("OnFailure", foo1=0, foo2=111), Want(start=(1,)), id="OnFailure restarts the failure"),
        pytest.param(regular("OnFailure", foo1=0, foo2=CREATED), Want(start=(1,)), id="OnFailure starts a created one"),
        pytest.param(regular("Never", foo1=0, foo2=1), ALL_GOOD, id="Never restarts nothing"),
        pytest.param(
            regular(sandboxes=(DEAD,)),
            Want(kill_pod=True, create=True, attempt=1, start=(0, 1, 2)),
            id="a dead sandbox is made again",
        ),
        pytest.param(
            regular("OnFailure", foo2=0, sandboxes=(DEAD,)),
            Want(kill_pod=True, create=True, attempt=1, start=(0, 2)),
            id="a dead sandbox with OnFailure leaves the completed container",
        ),
        pytest.param(
            regular(sandboxes=(make_sandbox(ip=""),)),
            Want(kill_pod=True, create=True, attempt=1, start=(0, 1, 2)),
            id="a sandbox without an address is made again",
        ),
        pytest.param(regular(foo2="changed"), Want(start=(1,), kill=("foo2",)), id="a changed definition restarts"),
        pytest.param(
            regular("Never", sandboxes=(make_sandbox(attempt=1, ready=False),), **ALL_DONE),
            Want(kill_pod=True, attempt=2),
            id="Never with a dead sandbox and exited containers only kills",
        ),
        pytest.param(
            regular("OnFailure", sandboxes=(make_sandbox(attempt=1, ready=False),), **ALL_DONE),
            Want(kill_pod=True, attempt=2),
            id="OnFailure with a dead sandbox and everything completed only kills",
        ),
        pytest.param(
            regular("Never", sandboxes=(make_sandbox(attempt=2, ready=False),), **NO_RUN),
            Want(kill_pod=True, create=True, attempt=3, start=(0, 1, 2)),
            id="Never with a dead sandbox and no containers starts them",
        ),
        pytest.param(
            regular("Never", foo2=UNKNOWN), Want(start=(1,), kill=("foo2",)), id="an unknown container is killed first"
        ),
        pytest.param(regular("Never", foo2=CREATED), Want(start=(1,)), id="a created container is started"),
        pytest.param(init(), Want(start=(0, 1, 2)), id="init done"),
        pytest.param(init(**NO_INIT), Want(init=(0,)), id="init: nothing ran yet"),
        pytest.param(init(init3=RUNNING), ALL_GOOD, id="init: the last one runs"),
        pytest.param(
            init(sandboxes=(DEAD,)),
            Want(kill_pod=True, create=True, attempt=1, init=(0,)),
            id="init: a dead sandbox starts over",
        ),
        pytest.param(init(init3=137), Want(init=(2,)), id="init: a failure is retried with Always"),
        pytest.param(init("OnFailure", init3=137), Want(init=(2,)), id="init: a failure is retried with OnFailure"),
        pytest.param(init("Never", init3=137), Want(kill_pod=True), id="init: a failure with Never ends the pod"),
        pytest.param(init(init3=UNKNOWN), Want(init=(2,), kill=("init3",)), id="init: unknown is retried with Always"),
        pytest.param(init("OnFailure", init3=UNKNOWN), Want(init=(2,), kill=("init3",)), id="init: unknown, OnFailure"),
        pytest.param(init("Never", init3=UNKNOWN), Want(kill_pod=True), id="init: unknown with Never ends the pod"),
        pytest.param(
            init("Never", sandboxes=(DEAD,)),
            Want(kill_pod=True, attempt=1),
            id="init: a dead sandbox with Never and records only kills",
        ),
        pytest.param(
            init("Never", sandboxes=(DEAD,), **NO_INIT),
            Want(kill_pod=True, create=True, attempt=1, init=(0,)),
            id="init: a dead sandbox with Never and no records starts over",
        ),
        pytest.param(
            init(init1=None, init2=None, init3=RUNNING), ALL_GOOD, id="init: lost records of earlier ones do not matter"
        ),
        pytest.param(init(init3=CREATED), Want(init=(2,)), id="init: the last one was only created"),
        pytest.param(sidecars(), Want(start=(0, 1, 2)), id="sidecars: all run"),
        pytest.param(sidecars(init2=None, init3=None), Want(init=(1,)), id="sidecars: the next one starts"),
        pytest.param(
            sidecars(init3="changed"),
            Want(init=(2,), start=(0, 1, 2), kill=("init3",)),
            id="sidecars: a changed one is replaced",
        ),
        pytest.param(
            sidecars(init1=0, init3=0), Want(init=(0, 2)), id="sidecars: exited ones start again, initialization waits"
        ),
        pytest.param(sidecars(init1=0), Want(init=(0,), start=(0, 1, 2)), id="sidecars: an early one exited"),
        pytest.param(sidecars("Never", init3=137), Want(init=(2,)), id="sidecars: Never does not count for them"),
        pytest.param(
            sidecars("Never", init3=UNKNOWN), Want(init=(2,), kill=("init3",)), id="sidecars: unknown is replaced"
        ),
        pytest.param(
            sidecars("Never", init3=0, foo1=RUNNING, foo2=RUNNING, foo3=RUNNING),
            Want(init=(2,)),
            id="sidecars: one that exited beside running containers starts again",
        ),
        pytest.param(
            sidecars("Never", foo1=0, foo2=0, foo3=0), Want(kill_pod=True), id="sidecars: they do not keep a pod alive"
        ),
        pytest.param(
            sidecars(init1=None, init2=None),
            Want(init=(0, 1), start=(0, 1, 2)),
            id="sidecars: lost ones start again",
        ),
    ],
)
def test_actions(case, want):
    pod, status = case
    assert shown(compute_pod_actions(pod, status, probes={})) == want


def probed(container: str, kind: ProbeKind, result: ProbeResult):
    return {ProbeKey(ContainerId(f"{container}-0"), kind): result}


@pytest.mark.parametrize(
    ("case", "probes", "want"),
    [
        pytest.param(
            regular(),
            probed("foo2", ProbeKind.LIVENESS, FAILURE),
            Want(start=(1,), kill=("foo2",)),
            id="liveness fails",
        ),
        pytest.param(
            regular(), probed("foo2", ProbeKind.STARTUP, FAILURE), Want(start=(1,), kill=("foo2",)), id="startup fails"
        ),
        pytest.param(
            regular("Never"), probed("foo2", ProbeKind.LIVENESS, FAILURE), Want(kill=("foo2",)), id="Never only kills"
        ),
        pytest.param(
            sidecars(probe="liveness_probe", init3=None), {}, Want(init=(2,)), id="sidecar liveness has not run"
        ),
        pytest.param(
            sidecars(probe="liveness_probe", init3=None),
            probed("init2", ProbeKind.LIVENESS, UNSURE),
            Want(init=(2,)),
            id="sidecar liveness is unknown",
        ),
        pytest.param(
            sidecars(probe="liveness_probe", init3=None),
            probed("init2", ProbeKind.LIVENESS, SUCCESS),
            Want(init=(2,)),
            id="sidecar liveness passed",
        ),
        pytest.param(
            sidecars(probe="startup_probe", init3=None),
            probed("init1", ProbeKind.STARTUP, SUCCESS),
            ALL_GOOD,
            id="sidecar startup has not run",
        ),
        pytest.param(
            sidecars(probe="startup_probe", init3=None),
            probed("init2", ProbeKind.STARTUP, UNSURE),
            ALL_GOOD,
            id="sidecar startup is unknown",
        ),
        pytest.param(
            sidecars(probe="liveness_probe"),
            probed("init3", ProbeKind.LIVENESS, FAILURE),
            Want(init=(2,), start=(0, 1, 2), kill=("init3",)),
            id="the last sidecar fails liveness",
        ),
        pytest.param(
            sidecars(probe="startup_probe"),
            probed("init3", ProbeKind.STARTUP, FAILURE),
            Want(init=(2,), kill=("init3",)),
            id="the last sidecar fails startup",
        ),
    ],
)
def test_actions_by_probes(case, probes, want):
    pod, status = case
    assert shown(compute_pod_actions(pod, status, probes=probes)) == want


LIVENESS_FAILED = probed("foo1", ProbeKind.LIVENESS, FAILURE)


def policies(pod_policy: str, *own: str | None, sandboxes=None, **states):
    containers = [make_container(f"foo{n}", restart_policy=policy) for n, policy in enumerate(own, start=1)]
    pod = make_pod(*containers, restart_policy=pod_policy)
    names = [container.name for container in containers]
    return pod, make_status(pod, *_records(pod, names, states, RUNNING), sandboxes=sandboxes)


@pytest.mark.parametrize(
    ("case", "want"),
    [
        pytest.param(policies("Never", "Always", "Always", foo1=0, foo2=111), Want(start=(0, 1)), id="own Always"),
        pytest.param(policies("Never", "OnFailure", "OnFailure", foo1=0, foo2=111), Want(start=(1,)), id="OnFailure"),
        pytest.param(
            policies("Always", "Never", "Never", None, foo1=0, foo2=111), ALL_GOOD, id="own Never beside a running one"
        ),
        pytest.param(
            policies("Always", None, "OnFailure", None, foo2=0, sandboxes=(DEAD,)),
            Want(kill_pod=True, create=True, attempt=1, start=(0, 2)),
            id="own OnFailure is not started again in a new sandbox",
        ),
    ],
)
def test_container_restart_policies(case, want):
    pod, status = case
    assert shown(compute_pod_actions(pod, status, probes={})) == want


@pytest.mark.parametrize(
    ("exit_code", "restarts"),
    [
        pytest.param(42, True, id="the first rule lists it"),
        pytest.param(1, False, id="no rule matches and the policy is Never"),
        pytest.param(0, True, id="the second rule does not list it"),
    ],
)
def test_restart_rules(exit_code, restarts):
    rules = (
        ContainerRestartRule(action="Restart", exit_codes=ContainerRestartRuleOnExitCodes(operator="In", values=(42,))),
        ContainerRestartRule(
            action="Restart", exit_codes=ContainerRestartRuleOnExitCodes(operator="NotIn", values=(1, 2))
        ),
    )
    ruled = replace(make_container("foo1", restart_policy="Never"), restart_policy_rules=rules)
    pod = make_pod(ruled, "foo2", restart_policy="Never")
    status = make_status(pod, make_record(pod, "foo1", EXITED, exit_code=exit_code), make_record(pod, "foo2"))
    assert compute_pod_actions(pod, status, probes={}).start == ((0,) if restarts else ())


@pytest.mark.parametrize(
    ("state", "started"),
    [
        pytest.param(None, (0,), id="no record starts it"),
        pytest.param(EXITED, (), id="an exited one stays"),
        pytest.param(UNKNOWN, (), id="an unknown one is left alone"),
    ],
)
def test_ephemeral_containers(state, started):
    pod = make_pod("foo1")
    debugger = EphemeralContainer(name="debug", image="x")
    pod = replace(pod, spec=replace(pod.spec, ephemeral_containers=(debugger,)))
    records = [make_record(pod, "foo1")] + ([make_record(pod, "debug", state)] if state else [])
    assert compute_pod_actions(pod, make_status(pod, *records), probes={}).start_ephemeral == started


def test_a_running_ephemeral_container_does_not_keep_a_pod_alive():
    pod = make_pod("foo1", restart_policy="Never")
    pod = replace(pod, spec=replace(pod.spec, ephemeral_containers=(EphemeralContainer(name="debug", image="x"),)))
    status = make_status(pod, make_record(pod, "foo1", EXITED), make_record(pod, "debug"))
    assert shown(compute_pod_actions(pod, status, probes={})) == Want(kill_pod=True)


def worked_example(**states) -> tuple[Pod, PodRuntimeStatus]:
    """A plain init container, a sidecar with a startup probe, another plain one, and the main container."""
    side = replace(make_container("s1", restart_policy="Always"), startup_probe=Probe())
    pod = make_pod("m", init=("i0", side, "i2"))
    return pod, make_status(pod, *_records(pod, list(states), states, None))


STARTED = probed("s1", ProbeKind.STARTUP, SUCCESS)


@pytest.mark.parametrize(
    ("case", "probes", "want"),
    [
        pytest.param(worked_example(), {}, Want(init=(0,)), id="nothing ran yet"),
        pytest.param(worked_example(i0=RUNNING), {}, ALL_GOOD, id="the first one runs"),
        pytest.param(worked_example(i0=0), {}, Want(init=(1,)), id="the sidecar comes next"),
        pytest.param(worked_example(i0=0, s1=RUNNING), {}, ALL_GOOD, id="the sidecar has not been probed"),
        pytest.param(
            worked_example(i0=0, s1=RUNNING),
            probed("s1", ProbeKind.STARTUP, UNSURE),
            ALL_GOOD,
            id="nobody knows whether the sidecar has started",
        ),
        pytest.param(worked_example(i0=0, s1=RUNNING), STARTED, Want(init=(2,)), id="the sidecar has started"),
        pytest.param(worked_example(i0=0, s1=1, i2=RUNNING), {}, Want(init=(1,)), id="the sidecar ended meanwhile"),
        pytest.param(worked_example(i0=0, s1=RUNNING, i2=0), STARTED, Want(start=(0,)), id="all have done their part"),
        pytest.param(
            worked_example(i0=0, s1=1, i2=0),
            {},
            Want(init=(1,), start=(0,)),
            id="the sidecar and the main one together",
        ),
        pytest.param(worked_example(m=RUNNING), {}, Want(init=(1,)), id="what runs proves that all was done"),
        pytest.param(
            worked_example(i0=0, s1=RUNNING, m=1), STARTED, Want(init=(2,)), id="what has ended proves nothing"
        ),
    ],
)
def test_the_way_to_an_initialized_pod(case, probes, want):
    pod, status = case
    assert shown(compute_pod_actions(pod, status, probes=probes)) == want


def test_what_was_only_made_in_an_earlier_sandbox_proves_nothing():
    pod = make_pod("m", init=("i0",))
    status = make_status(
        pod,
        make_record(pod, "i0", RUNNING, sandbox="sandbox-1"),
        make_record(pod, "m", CREATED, sandbox="sandbox-0"),
        sandboxes=(make_sandbox(attempt=1), DEAD),
    )
    assert shown(compute_pod_actions(pod, status, probes={})) == Want(attempt=1)


@pytest.mark.parametrize(
    ("policy", "code", "want"),
    [
        pytest.param("Always", 0, Want(init=(2,)), id="Always tries again"),
        pytest.param("OnFailure", 0, Want(kill_pod=True), id="OnFailure uses its exit code"),
        pytest.param("OnFailure", 137, Want(init=(2,)), id="OnFailure with a code tries again"),
        pytest.param("Never", 0, Want(kill_pod=True), id="Never ends the pod"),
    ],
)
def test_an_init_container_that_ran_out_of_memory_has_failed(policy, code, want):
    pod, status = init(policy, init3=None)
    record = make_record(pod, "init3", EXITED, exit_code=code, reason="OOMKilled")
    status = make_status(pod, *status.containers, record)
    assert shown(compute_pod_actions(pod, status, probes={})) == want


@pytest.mark.parametrize(
    ("policy", "probes", "want"),
    [
        pytest.param("Always", LIVENESS_FAILED, Want(start=(0,), kill=("foo1",)), id="it is restarted"),
        pytest.param("Never", LIVENESS_FAILED, Want(kill_pod=True, kill=("foo1",)), id="with Never the pod is over"),
    ],
)
def test_the_only_container_fails_its_probe(policy, probes, want):
    pod = make_pod("foo1", restart_policy=policy)
    actions = compute_pod_actions(pod, make_status(pod, make_record(pod, "foo1")), probes=probes)
    assert shown(actions) == want


@pytest.mark.parametrize(
    ("case", "probes", "reason", "message"),
    [
        pytest.param(
            regular(foo1="changed"), {}, "Unknown", "Container foo1 definition changed, R", id="another image"
        ),
        pytest.param(
            regular("Never", foo1="changed"),
            {},
            "Unknown",
            "Container foo1 definition changed, R",
            id="another image restarts whatever the policy says",
        ),
        pytest.param(
            regular(), LIVENESS_FAILED, "LivenessProbe", "Container foo1 failed liveness probe, R", id="liveness"
        ),
        pytest.param(
            regular("Never"),
            LIVENESS_FAILED,
            "LivenessProbe",
            "Container foo1 failed liveness probe",
            id="and no restart",
        ),
        pytest.param(
            regular(),
            probed("foo1", ProbeKind.STARTUP, FAILURE),
            "StartupProbe",
            "Container foo1 failed startup probe, R",
            id="startup",
        ),
        pytest.param(
            regular(foo1=UNKNOWN),
            {},
            "Unknown",
            'Container is in "unknown" state, try killing it before restart',
            id="unknown",
        ),
        pytest.param(
            init(init3=UNKNOWN),
            {},
            "Unknown",
            'Init container is in "unknown" state, try killing it before restart',
            id="an unknown init container",
        ),
        pytest.param(
            sidecars(init3="changed"), {}, "Unknown", "Init container init3 definition changed", id="another sidecar"
        ),
        pytest.param(
            sidecars(probe="liveness_probe"),
            probed("init3", ProbeKind.LIVENESS, FAILURE),
            "LivenessProbe",
            "Init container init3 failed liveness probe",
            id="liveness of a sidecar",
        ),
        pytest.param(
            sidecars(probe="startup_probe"),
            probed("init3", ProbeKind.STARTUP, FAILURE),
            "StartupProbe",
            "Init container init3 failed startup probe",
            id="startup of a sidecar",
        ),
    ],
)
def test_why_a_container_is_killed(case, probes, reason, message):
    pod, status = case
    (kill,) = compute_pod_actions(pod, status, probes=probes).kill
    assert (kill.reason, kill.message) == (reason, message.replace(", R", ", will be restarted"))


def test_a_deleted_pod_starts_nothing():
    pod = make_pod("foo1", "foo2", deleted=True)
    status = make_status(pod, make_record(pod, "foo1"), make_record(pod, "foo2", EXITED, exit_code=1))
    assert shown(compute_pod_actions(pod, status, probes={})) == ALL_GOOD


@pytest.mark.parametrize(
    ("sandboxes", "host_network", "want"),
    [
        pytest.param((), False, SandboxPlan(create=True, attempt=0, id=None), id="none"),
        pytest.param((make_sandbox(),), False, SandboxPlan(create=False, attempt=0, id="sandbox-0"), id="one ready"),
        pytest.param(
            (make_sandbox(attempt=3), make_sandbox(attempt=2)),
            False,
            SandboxPlan(create=True, attempt=4, id="sandbox-3"),
            id="two ready",
        ),
        pytest.param((DEAD,), False, SandboxPlan(create=True, attempt=1, id="sandbox-0"), id="not ready"),
        pytest.param((make_sandbox(),), True, SandboxPlan(create=True, attempt=1, id=None), id="network mode changed"),
        pytest.param(
            (make_sandbox(ip=""),), False, SandboxPlan(create=True, attempt=1, id="sandbox-0"), id="no address"
        ),
        pytest.param(
            (make_sandbox(ip="", host_network=True),),
            True,
            SandboxPlan(create=False, attempt=0, id="sandbox-0"),
            id="the host's network needs no address",
        ),
    ],
)
def test_plan_sandbox(sandboxes, host_network, want):
    pod = make_pod()
    pod = replace(pod, spec=replace(pod.spec, host_network=host_network))
    plan = plan_sandbox(pod, make_status(pod, sandboxes=sandboxes))
    assert (plan.create, plan.attempt, plan.id) == (want.create, want.attempt, want.id)


@pytest.mark.parametrize(
    ("sandboxes", "recorded"),
    [
        pytest.param((), [], id="the first sandbox"),
        pytest.param((DEAD,), ["Pod sandbox changed, it will be killed and re-created."], id="a dead one"),
        pytest.param((make_sandbox(host_network=True),), [], id="one on another network is not named"),
    ],
)
def test_users_are_notified_of_a_sandbox_that_is_replaced(sandboxes, recorded):
    pod, status = regular(sandboxes=sandboxes)
    findings = compute_pod_actions(pod, status, probes={}).findings
    assert [finding.message for finding in findings if finding.decision == "SandboxChanged"] == recorded


def asking(name: str, policy: str = "Never"):
    codes = ContainerRestartRuleOnExitCodes(operator="In", values=(42,))
    rules = (ContainerRestartRule(action="RestartAllContainers", exit_codes=codes),)
    return replace(make_container(name, restart_policy=policy), restart_policy_rules=rules)


WHOLE = replace(
    make_pod(
        asking("main"),
        "helper",
        "done",
        init=(asking("check"), "setup", make_container("side", restart_policy="Always")),
        restart_policy="Never",
    )
)


def test_all_are_removed_and_what_asked_for_it_last():
    records = [
        make_record(WHOLE, "check", EXITED, exit_code=42, restarts=0),
        make_record(WHOLE, "check", EXITED, restarts=1),
        make_record(WHOLE, "setup", EXITED),
        make_record(WHOLE, "side", RUNNING),
        make_record(WHOLE, "main", EXITED, exit_code=42),
        make_record(WHOLE, "helper", RUNNING),
        make_record(WHOLE, "done", EXITED),
    ]
    status = make_status(WHOLE, *records)
    actions = compute_pod_actions(WHOLE, status, probes={}, restart_all=True, is_restarting_all=True)
    assert shown(actions) == Want()
    assert [(each.id, each.kill) for each in actions.reset] == [
        ("helper-0", True),
        ("done-0", False),
        ("check-1", False),
        ("setup-0", False),
        ("side-0", True),
        ("main-0", False),
        ("check-0", False),
    ]
    assert not actions.is_idle
    assert actions.reset_not_before == NOW + timedelta(seconds=2)
    [finding] = actions.findings
    assert (finding.decision, finding.measurements) == ("RestartAllContainers", {"container": "main", "exitCode": 42})


@pytest.mark.parametrize("state", [CREATED, UNKNOWN], ids=str)
def test_what_may_run_is_killed_before_it_is_removed(state):
    pod = make_pod(asking("main"), "helper")
    records = (make_record(pod, "main", EXITED, exit_code=42), make_record(pod, "helper", state))
    actions = compute_pod_actions(pod, make_status(pod, *records), probes={}, is_restarting_all=True)
    assert [(each.name, each.kill) for each in actions.reset] == [("helper", True), ("main", False)]


def test_an_ephemeral_container_is_neither_removed_nor_started_meanwhile():
    debuggers = tuple(EphemeralContainer(name=name, image="x") for name in ("debug", "new"))
    pod = make_pod(asking("main"))
    pod = replace(pod, spec=replace(pod.spec, ephemeral_containers=debuggers))
    records = (make_record(pod, "main", EXITED, exit_code=42), make_record(pod, "debug", RUNNING))
    actions = compute_pod_actions(pod, make_status(pod, *records), probes={}, is_restarting_all=True)
    assert [each.name for each in actions.reset] == ["main"]
    assert shown(actions) == Want()


def test_a_dead_sandbox_is_replaced_first_whatever_the_policy():
    status = make_status(WHOLE, make_record(WHOLE, "main", EXITED, exit_code=42), sandboxes=(DEAD,))
    actions = compute_pod_actions(WHOLE, status, probes={}, is_restarting_all=True)
    assert shown(actions) == Want(kill_pod=True, create=True, attempt=1)
    assert actions.reset == ()
    assert [each.decision for each in actions.findings] == ["SandboxChanged", "CreateSandbox"]


def test_what_a_previous_agent_left_is_removed_without_knowing_who_asked_for_it():
    pod = make_pod(asking("main"), "helper")
    actions = compute_pod_actions(
        pod, make_status(pod, make_record(pod, "helper", RUNNING)), probes={}, is_restarting_all=True
    )
    assert ([each.name for each in actions.reset], actions.reset_not_before) == (["helper"], None)
    assert actions.findings[0].message == "condition AllContainersRestarting is True, and containers are left"


@pytest.mark.parametrize(
    ("is_on", "want"),
    [
        pytest.param(True, Want(init=(0,)), id="with the gate: it is started once more, as upstream would"),
        pytest.param(False, Want(kill_pod=True), id="without: its policy is final"),
    ],
)
def test_an_init_container_whose_rule_restarts_all(is_on, want):
    pod = make_pod("main", init=(asking("check"),), restart_policy="Never")
    status = make_status(pod, make_record(pod, "check", EXITED, exit_code=42))
    assert shown(compute_pod_actions(pod, status, probes={}, restart_all=is_on)) == want
