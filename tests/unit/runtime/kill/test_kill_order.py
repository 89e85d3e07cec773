"""Who waits for whom when a pod with sidecars is stopped."""

import pytest
from msgspec.structs import replace

from klet.api.handlers import Probe
from klet.model.pods import LONGEST_GRACE
from klet.runtime.actions import KillReason
from klet.runtime.kill.kill_order import base_grace, plan_kill_order, stop_timeout, whole_seconds
from klet.testing.builders import make_container, make_pod

ALL = ("s1", "plain", "s2", "s3", "m", "n")
UNKNOWN, LIVENESS, STARTUP = KillReason.UNKNOWN, KillReason.LIVENESS_PROBE, KillReason.STARTUP_PROBE


def sidecar(name: str):
    return make_container(name, restart_policy="Always")


@pytest.mark.parametrize(
    ("running", "expected"),
    [
        pytest.param(
            ALL,
            {"s3": {"m", "n"}, "s2": {"m", "n", "s3"}, "s1": {"m", "n", "s2"}},
            id="each sidecar waits for the regular containers and the next sidecar, past a plain init container",
        ),
        pytest.param(
            ("s1", "s2", "s3", "m"),
            {"s3": {"m"}, "s2": {"m", "s3"}, "s1": {"m", "s2"}},
            id="a container that does not run counts as ended",
        ),
        pytest.param(
            ("s1", "s3", "m"),
            {"s3": {"m"}, "s1": {"m"}},
            id="nobody waits for the sidecar behind one that does not run",
        ),
        pytest.param(("s1", "s2"), {"s1": {"s2"}}, id="sidecars alone"),
        pytest.param(("s1",), {}, id="the last one waits for nobody"),
        pytest.param(("plain", "s1"), {}, id="a plain init container is waited for by nobody"),
        pytest.param(("m", "n"), {}, id="regular containers wait for nobody"),
        pytest.param((), {}, id="nothing runs"),
    ],
)
def test_who_waits_for_whom(running, expected):
    pod = make_pod("m", "n", init=(sidecar("s1"), "plain", sidecar("s2"), sidecar("s3")))
    assert plan_kill_order(pod, running) == expected


def test_a_pod_without_sidecars_has_no_order():
    assert plan_kill_order(make_pod("m", "n", init=("plain",)), ("m", "n", "plain")) == {}


@pytest.mark.parametrize(
    ("deletion", "spec", "reason", "liveness", "startup", "expected"),
    [
        pytest.param(None, None, UNKNOWN, None, None, 2, id="nothing set"),
        pytest.param(None, None, LIVENESS, 5, None, 2, id="a probe counts only beside the pod's own"),
        pytest.param(None, 30, UNKNOWN, 5, 5, 30, id="probes do not matter to other kills"),
        pytest.param(None, 30, LIVENESS, 5, None, 5, id="the liveness probe's own"),
        pytest.param(None, 30, STARTUP, None, 5, 5, id="the startup probe's own"),
        pytest.param(None, 5, LIVENESS, 30, None, 30, id="a probe may have longer than the pod"),
        pytest.param(None, 5, STARTUP, None, 30, 30, id="a startup probe too"),
        pytest.param(None, 30, LIVENESS, None, 5, 30, id="another probe's does not count"),
        pytest.param(10, 30, LIVENESS, 5, None, 10, id="a deletion decides"),
        pytest.param(0, 30, UNKNOWN, None, None, 0, id="a deletion with zero decides too"),
        pytest.param(None, 0, UNKNOWN, None, None, 0, id="a pod may ask for zero"),
        pytest.param(None, 2**63 - 1, UNKNOWN, None, None, LONGEST_GRACE, id="more than any clock can count"),
    ],
)
def test_before_any_override(deletion, spec, reason, liveness, startup, expected):
    container = replace(
        make_container("c"),
        liveness_probe=Probe(termination_grace_period_seconds=liveness),
        startup_probe=Probe(termination_grace_period_seconds=startup),
    )
    pod = make_pod(container)
    pod = replace(
        pod,
        metadata=replace(pod.metadata, deletion_grace_period_seconds=deletion),
        spec=replace(pod.spec, termination_grace_period_seconds=spec),
    )
    assert base_grace(pod, container, reason) == expected


def test_a_container_that_the_spec_no_longer_has_gets_the_pods_grace():
    assert base_grace(make_pod("c"), None, LIVENESS) == 30


@pytest.mark.parametrize(
    ("grace", "override", "spent", "expected"),
    [
        pytest.param(30, None, 0, 30, id="as it is"),
        pytest.param(30, 1, 0, 2, id="an override below the minimum"),
        pytest.param(30, 0, 0, 2, id="an override of zero"),
        pytest.param(30, 60, 0, 60, id="an override may be longer"),
        pytest.param(0, None, 0, 2, id="a pod that asks for zero"),
        pytest.param(30, None, 12, 18, id="a hook has used up a part"),
        pytest.param(5, None, 5, 2, id="a hook has used up all"),
    ],
)
def test_what_the_runtime_is_given(grace, override, spent, expected):
    assert stop_timeout(grace, override, spent=spent) == expected


@pytest.mark.parametrize(
    ("elapsed", "expected"),
    [
        pytest.param(12.7, 12, id="a second that has begun does not count"),
        pytest.param(0.0, 0, id="no time"),
        pytest.param(4.9999, 5, id="a timer that fired a hair early"),
    ],
)
def test_elapsed_time_in_whole_seconds(elapsed, expected):
    assert whole_seconds(elapsed) == expected
