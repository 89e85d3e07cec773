"""When the exit of one container restarts all of its pod, and when that is done."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.container import Container, ContainerRestartRule, ContainerRestartRuleOnExitCodes
from klet.api.container_status import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStatus,
)
from klet.api.pod import PodCondition, PodStatus
from klet.api.times import Time
from klet.model.restart_rules import (
    find_rule,
    has_begun_again,
    is_cleaned_up,
    is_restarting_all,
    may_restart_all,
    should_restart_all,
)
from klet.model.runtime import RuntimeContainerState
from klet.testing.builders import NOW, make_container, make_pod, make_record, make_status

RUNNING, EXITED = RuntimeContainerState.RUNNING, RuntimeContainerState.EXITED
UNKNOWN = RuntimeContainerState.UNKNOWN


def rule(action: str, *codes: int, operator: str = "In") -> ContainerRestartRule:
    return ContainerRestartRule(
        action=action, exit_codes=ContainerRestartRuleOnExitCodes(operator=operator, values=codes)
    )


def ruled(name: str, *rules: ContainerRestartRule, policy: str = "Never") -> Container:
    return replace(make_container(name, restart_policy=policy), restart_policy_rules=rules)


ALL = rule("RestartAllContainers", 42)
POD = make_pod(ruled("main", ALL), "helper", init=("setup",), restart_policy="Never")
GOES_ON = PodCondition(type="AllContainersRestarting", status="True")


@pytest.mark.parametrize(
    ("rules", "code", "expected"),
    [
        pytest.param((ALL,), 42, ALL, id="a listed code"),
        pytest.param((ALL,), 1, None, id="another code"),
        pytest.param((rule("Restart", 42), ALL), 42, rule("Restart", 42), id="the first that matches"),
        pytest.param((ContainerRestartRule(action="Restart"), ALL), 42, ALL, id="one without codes never matches"),
        pytest.param((rule("Restart", 42, operator="NotIn"),), 42, None, id="not among others"),
        pytest.param((rule("Restart", 1, operator="Near"),), 1, None, id="an unknown operator"),
    ],
)
def test_the_rule_for_an_exit(rules, code, expected):
    assert find_rule(ruled("main", *rules), code) == expected


def test_any_rule_of_any_container_makes_it_possible():
    assert may_restart_all(POD.spec)
    assert may_restart_all(make_pod("main", init=(ruled("setup", ALL),)).spec)
    assert not may_restart_all(make_pod(ruled("main", rule("Restart", 42))).spec)


def reported(*, main: int | None = None, conditions=(), **names) -> PodStatus:
    state = ContainerState(running=ContainerStateRunning())
    if main is not None:
        state = ContainerState(terminated=ContainerStateTerminated(exit_code=main))
    return PodStatus(conditions=conditions, container_statuses=(ContainerStatus(name="main", state=state),), **names)


@pytest.mark.parametrize(
    ("records", "status", "expected"),
    [
        pytest.param([("main", EXITED, 42)], reported(), True, id="the runtime shows such an exit"),
        pytest.param([("main", EXITED, 1)], reported(), False, id="another exit"),
        pytest.param([("main", RUNNING, 0)], reported(), False, id="it runs"),
        pytest.param([("helper", EXITED, 42)], reported(), False, id="a container without a rule"),
        pytest.param([("main", RUNNING, 0)], reported(conditions=(GOES_ON,)), True, id="what was begun goes on"),
        pytest.param([], reported(conditions=(GOES_ON,)), True, id="also when nothing is left"),
        pytest.param([], reported(main=42), False, id="an exit that was reported, of a container that is gone"),
        pytest.param([("main", UNKNOWN, 0)], reported(main=42), False, id="or that may run"),
        pytest.param([("main", EXITED, 1)], reported(main=42), True, id="of one that has ended otherwise since then"),
        pytest.param(None, reported(main=42), True, id="by what was reported alone"),
        pytest.param(None, reported(main=1), False, id="by another exit alone"),
        pytest.param(
            [("main", RUNNING, 0)],
            reported(conditions=(replace(GOES_ON, status="False"),)),
            False,
            id="it is over",
        ),
    ],
)
def test_whether_all_restart(records, status, expected):
    seen = None
    if records is not None:
        seen = make_status(POD, *(make_record(POD, name, state, exit_code=code) for name, state, code in records))
    assert should_restart_all(POD, seen, status) is expected
    assert is_restarting_all(status) is (GOES_ON in status.conditions)


def test_nothing_is_left_but_what_does_not_restart():
    assert is_cleaned_up(POD, make_status(POD))
    assert not is_cleaned_up(POD, make_status(POD, make_record(POD, "setup", EXITED)))
    assert not is_cleaned_up(POD, make_status(POD, make_record(POD, "helper", RUNNING)))


@pytest.mark.parametrize(
    ("since", "records", "expected"),
    [
        pytest.param(-5, [("setup", EXITED, 0)], True, id="what is there was made later"),
        pytest.param(5, [("setup", EXITED, 0)], False, id="what is there was made before"),
        pytest.param(-5, [("main", EXITED, 42)], False, id="what asked for it is still there, or asks again"),
        pytest.param(None, [("setup", EXITED, 0)], False, id="it is not known when it began"),
    ],
)
def test_a_status_may_be_older_than_the_containers(since, records, expected):
    at = None if since is None else Time.of(NOW + timedelta(seconds=since))
    status = PodStatus(conditions=(replace(GOES_ON, last_transition_time=at),))
    seen = make_status(POD, *(make_record(POD, name, state, exit_code=code) for name, state, code in records))
    assert has_begun_again(POD, seen, status) is expected
