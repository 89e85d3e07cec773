"""Whether a container is started again."""

import pytest
from msgspec.structs import replace

from klet.api.container import ContainerRestartRule, ContainerRestartRuleOnExitCodes, EphemeralContainer
from klet.api.container_status import ContainerState, ContainerStateTerminated, ContainerStatus
from klet.api.pod import PodStatus
from klet.model.runtime import RuntimeContainerState
from klet.runtime.restart import comes_back, effective_policy, restartable_names, restarts_after, should_restart
from klet.testing.builders import make_container, make_pod, make_record, make_status


def rule(operator: str, *values: int, action: str = "Restart") -> ContainerRestartRule:
    codes = ContainerRestartRuleOnExitCodes(operator=operator, values=values)
    return ContainerRestartRule(action=action, exit_codes=codes)


@pytest.mark.parametrize(
    ("pod_policy", "own", "code", "expected"),
    [
        pytest.param("Always", None, 0, True, id="the pod says always"),
        pytest.param("Always", None, 1, True, id="the pod says always, after a failure"),
        pytest.param("OnFailure", None, 0, False, id="success is final on failure only"),
        pytest.param("OnFailure", None, 1, True, id="a failure is tried again"),
        pytest.param("Never", None, 1, False, id="never is never"),
        pytest.param("", None, 0, True, id="any other policy of the pod counts as always"),
        pytest.param("Never", "Always", 0, True, id="the container's own policy wins"),
        pytest.param("Never", "OnFailure", 1, True, id="the container restarts on failure in a pod that never does"),
        pytest.param("Never", "OnFailure", 0, False, id="and not after success"),
        pytest.param("Always", "Never", 1, False, id="the container never restarts in a pod that always does"),
    ],
)
def test_policies(pod_policy, own, code, expected):
    container = make_container("c", restart_policy=own)
    pod = make_pod(container, restart_policy=pod_policy)
    assert restarts_after(container, pod, code) is expected
    assert effective_policy(container, pod) == (own or pod_policy)


WORKED = (rule("In", 42), rule("NotIn", 1, 2))


@pytest.mark.parametrize(
    ("rules", "code", "expected"),
    [
        pytest.param(WORKED, 42, True, id="a listed code restarts"),
        pytest.param(WORKED, 1, False, id="a code that no rule takes is left to the policy"),
        pytest.param(WORKED, 0, True, id="zero is not in the list of the second rule"),
        pytest.param(
            (rule("In", 42, action="RestartAllContainers"), rule("In", 42)),
            42,
            False,
            id="only the first match counts, whatever its action",
        ),
        pytest.param((ContainerRestartRule(action="Restart"),), 1, False, id="a rule without exit codes never matches"),
        pytest.param((ContainerRestartRule(action="Restart"), rule("In", 1)), 1, True, id="and does not hide the next"),
    ],
)
def test_rules_of_a_container_that_never_restarts_otherwise(rules, code, expected):
    container = replace(make_container("c", restart_policy="Never"), restart_policy_rules=rules)
    assert restarts_after(container, make_pod(container, restart_policy="Never"), code) is expected


def test_rules_without_a_policy_of_the_container_are_ignored():
    container = replace(make_container("c"), restart_policy_rules=(rule("In", 42),))
    assert not restarts_after(container, make_pod(container, restart_policy="Never"), 42)


@pytest.mark.parametrize("policy", ["Always", "Never"])
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(None, True, id="no record"),
        pytest.param(RuntimeContainerState.RUNNING, False, id="running"),
        pytest.param(RuntimeContainerState.CREATED, True, id="created, whatever the policy"),
        pytest.param(RuntimeContainerState.UNKNOWN, True, id="unknown, whatever the policy"),
    ],
)
def test_by_state(policy, state, expected):
    pod = make_pod("c", restart_policy=policy)
    record = None if state is None else make_record(pod, "c", state)
    assert should_restart(pod.spec.containers[0], pod, record) is expected


@pytest.mark.parametrize(("policy", "expected"), [("Always", True), ("OnFailure", False), ("Never", False)])
def test_an_exit_is_left_to_the_policy(policy, expected):
    pod = make_pod("c", restart_policy=policy)
    record = make_record(pod, "c", RuntimeContainerState.EXITED)
    assert should_restart(pod.spec.containers[0], pod, record) is expected


@pytest.mark.parametrize(
    "state", [None, RuntimeContainerState.EXITED, RuntimeContainerState.CREATED, RuntimeContainerState.UNKNOWN]
)
def test_nothing_of_a_deleted_pod_starts_again(state):
    pod = make_pod("c", deleted=True)
    record = None if state is None else make_record(pod, "c", state)
    assert not should_restart(pod.spec.containers[0], pod, record)


@pytest.mark.parametrize(
    ("name", "state", "code", "expected"),
    [
        pytest.param("main", None, 0, True, id="a container that never ran"),
        pytest.param("main", RuntimeContainerState.RUNNING, 0, False, id="one that runs"),
        pytest.param("main", RuntimeContainerState.EXITED, 0, True, id="one that ended well"),
        pytest.param("setup", None, 0, True, id="an init container that never ran"),
        pytest.param("setup", RuntimeContainerState.EXITED, 1, True, id="an init container that failed"),
        pytest.param("setup", RuntimeContainerState.EXITED, 0, False, id="an init container that ended well is done"),
        pytest.param("debug", None, 0, True, id="an ephemeral container that never ran"),
        pytest.param("debug", RuntimeContainerState.RUNNING, 0, False, id="an ephemeral container that runs"),
    ],
)
def test_for_which_containers_the_reason_why_they_do_not_run_is_reported(name, state, code, expected):
    pod = make_pod("main", init=("setup",))
    pod = replace(pod, spec=replace(pod.spec, ephemeral_containers=(EphemeralContainer(name="debug", image="x"),)))
    records = [make_record(pod, name, state, exit_code=code)] if state is not None else []
    assert (name in restartable_names(pod, make_status(pod, *records))) is expected


def test_of_a_deleted_pod_nothing_is_reported():
    assert restartable_names(make_pod("main", deleted=True), make_status(make_pod("main"))) == frozenset()


@pytest.mark.parametrize(
    ("policy", "code", "is_on", "expected"),
    [
        pytest.param("Never", 42, True, True, id="all restart, and so does it"),
        pytest.param("Never", 42, False, False, id="without the gate the policy decides"),
        pytest.param("Always", 42, False, True, id="whatever it is"),
        pytest.param("Never", 1, True, False, id="another exit"),
    ],
)
def test_a_rule_that_restarts_all(policy, code, is_on, expected):
    rules = (rule("In", 42, action="RestartAllContainers"),)
    container = replace(make_container("main", restart_policy=policy), restart_policy_rules=rules)
    pod = make_pod(container, restart_policy="Never")
    assert restarts_after(container, pod, code, restart_all=is_on) is expected
    record = make_record(pod, "main", RuntimeContainerState.EXITED, exit_code=code)
    assert should_restart(container, pod, record, restart_all=is_on) is expected
    assert restartable_names(pod, make_status(pod, record), restart_all=is_on) == frozenset(["main"] * expected)


@pytest.mark.parametrize(
    ("main", "is_on", "expected"),
    [
        pytest.param(42, True, True, id="another container has asked for a restart of all"),
        pytest.param(1, True, False, id="another exit of it"),
        pytest.param(42, False, False, id="without the gate"),
    ],
)
def test_a_container_that_is_never_restarted_comes_back_with_all_others(main, is_on, expected):
    asks = replace(
        make_container("main", restart_policy="Never"),
        restart_policy_rules=(rule("In", 42, action="RestartAllContainers"),),
    )
    pod = make_pod(asks, "helper", restart_policy="Never")
    ended = ContainerState(terminated=ContainerStateTerminated(exit_code=main))
    status = PodStatus(container_statuses=(ContainerStatus(name="main", state=ended),))
    assert comes_back(pod.spec.containers[1], pod, 0, status, restart_all=is_on) is expected
