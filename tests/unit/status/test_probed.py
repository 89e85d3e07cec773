"""A status with what a probe has just found out."""

import pytest
from msgspec.structs import replace

from klet.api.pod import PodStatus
from klet.model.allocation import PodResources, desired_allocation
from klet.model.runtime import ContainerId
from klet.status.generate import PodStatusInputs, generate_status
from klet.status.probed import with_readiness, with_startup
from klet.testing.builders import make_container, make_pod, make_record, make_status

POD = make_pod("main", "other", init=(make_container("side", restart_policy="Always"),))
SEEN = make_status(POD, *(make_record(POD, name) for name in ("side", "main", "other")))
IDS = {record.name: record.id for record in SEEN.containers}


def ready_status() -> PodStatus:
    inputs = PodStatusInputs(
        previous=PodStatus(),
        resources=PodResources(admitted=desired_allocation(POD)),
        runtime_name="containerd",
        qos_class="BestEffort",
        restarts=lambda _container, _code: True,
        needs_sandbox=False,
    )
    return generate_status(POD, SEEN, inputs)


def conditions(status: PodStatus) -> dict[str, tuple[str, str]]:
    wanted = {"Ready", "ContainersReady"}
    return {each.type: (each.status, each.message) for each in status.conditions if each.type in wanted}


@pytest.mark.parametrize("name", ["main", "side"])
def test_a_container_that_is_not_ready_makes_its_pod_unready(name):
    status = ready_status()
    changed = with_readiness(POD, status, ContainerId(IDS[name]), False)
    unready = ("False", f"containers with unready status: [{name}]")
    assert conditions(changed) == {"Ready": unready, "ContainersReady": unready}
    assert [each.type for each in changed.conditions] == [each.type for each in status.conditions]
    again = with_readiness(POD, changed, ContainerId(IDS[name]), True)
    assert again == status


@pytest.mark.parametrize(
    "container",
    [pytest.param(IDS["main"], id="a container that is ready"), pytest.param("gone", id="a container nobody knows")],
)
def test_no_news_of_readiness(container):
    assert with_readiness(POD, ready_status(), ContainerId(container), True) is None


def test_a_late_answer_about_a_container_that_has_ended_says_nothing():
    status = ready_status()
    ended = tuple(replace(each, state=replace(each.state, running=None)) for each in status.container_statuses)
    status = replace(status, container_statuses=ended)
    assert with_readiness(POD, status, ContainerId(IDS["main"]), False) is None


def test_startup():
    status = ready_status()
    changed = with_startup(POD, status, ContainerId(IDS["main"]), False)
    assert [each.started for each in changed.container_statuses] == [False, True]
    assert with_startup(POD, changed, ContainerId(IDS["main"]), False) is None
    assert with_startup(POD, changed, ContainerId("gone"), True) is None
