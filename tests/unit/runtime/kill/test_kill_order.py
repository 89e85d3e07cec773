"""Who waits for whom when a pod with sidecars is stopped."""

import pytest

from klet.runtime.kill.kill_order import plan_kill_order
from klet.testing.builders import make_container, make_pod

ALL = ("s1", "plain", "s2", "s3", "m", "n")


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
