from datetime import timedelta

import pytest

from klet.cli.node.services import NodeService, plan_services, read_services, restart_delay, write_services


def service(name, revision="1"):
    return NodeService(name=name, argv=(f"/bin/{name}",), log=f"/log/{name}", revision=revision)


A, B, B2, C = service("a"), service("b"), service("b", "2"), service("c")


def running(*services):
    return {one.name: one.digest for one in services}


@pytest.mark.parametrize(
    ("now", "wanted", "stop", "start"),
    [
        pytest.param((), (A, B), (), (A, B), id="everything starts, in order"),
        pytest.param((A, B), (A, B), (), (), id="nothing to do"),
        pytest.param((A,), (A, B), (), (B,), id="one more"),
        pytest.param((A, B), (A,), ("b",), (), id="one less"),
        pytest.param((A, B), (A, B2), ("b",), (B2,), id="a changed one is replaced"),
        pytest.param((A, B, C), (), ("c", "b", "a"), (), id="stopping goes backwards"),
    ],
)
def test_plan_services(now, wanted, stop, start):
    plan = plan_services(running(*now), wanted)
    assert (plan.stop, plan.start) == (stop, start)


@pytest.mark.parametrize(
    ("previous", "lived", "expected"),
    [
        pytest.param(0, 0, 0.2, id="the first failure"),
        pytest.param(0.2, 1, 0.4, id="the next one doubles"),
        pytest.param(25, 1, 30, id="up to the longest"),
        pytest.param(30, 60, 0.2, id="a container that ran for long starts over"),
    ],
)
def test_restart_delay(previous, lived, expected):
    delay = restart_delay(timedelta(seconds=previous), lived=timedelta(seconds=lived))
    assert delay == timedelta(seconds=expected)


def test_the_file_keeps_what_it_is_given(tmp_path):
    write_services(tmp_path / "services.json", (A, B2))
    assert read_services(tmp_path / "services.json") == (A, B2)
    assert (tmp_path / "services.json").stat().st_mode & 0o777 == 0o600
