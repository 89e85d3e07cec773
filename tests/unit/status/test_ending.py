"""The last status of a pod (TerminatePod)."""

import pytest
from msgspec.structs import replace

from klet.api.container_status import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
)
from klet.api.pod import PodCondition, PodStatus
from klet.status.containers import LOST_AT_TERMINATION
from klet.status.ending import count_begun, end_status, is_initialized
from klet.testing.builders import make_container, make_pod

WAITING = ContainerState(waiting=ContainerStateWaiting(reason="ContainerCreating"))
RUNNING = ContainerState(running=ContainerStateRunning())


def ended(code: int) -> ContainerState:
    return ContainerState(terminated=ContainerStateTerminated(exit_code=code, reason="Kept"))


def container(name: str, state: str) -> ContainerStatus:
    """W waiting, R running, S ended well, F failed; `W<S` waiting after it ended well."""
    states = {"W": WAITING, "R": RUNNING, "S": ended(0), "F": ended(1), "": ContainerState()}
    now, _, last = state.partition("<")
    return ContainerStatus(
        name=name,
        state=states[now],
        last_state=states[last],
        ready=False,
        restart_count=0,
        image="image",
        image_id="",
        started=now == "R",
    )


def shown(status: ContainerStatus) -> str:
    if status.state.terminated is None:
        return "waiting" if status.state.waiting is not None else "running"
    end = status.state.terminated
    is_lost = (end.exit_code, end.reason, end.message) == (137, "ContainerStatusUnknown", LOST_AT_TERMINATION)
    return "137" if is_lost else "kept"


def pod_status(init: str, regular: str, phase: str = "Running") -> PodStatus:
    return PodStatus(
        phase=phase,
        init_container_statuses=tuple(container(f"i{n}", state) for n, state in enumerate(init.split())),
        container_statuses=tuple(container(f"{n}", state) for n, state in enumerate(regular.split())),
    )


@pytest.mark.parametrize(
    ("init", "regular", "expected_init", "expected_regular"),
    [
        pytest.param("", "W", "", "137", id="waiting"),
        pytest.param("", "W<F", "", "137", id="waiting for its next start"),
        pytest.param("W", "W", "137", "waiting", id="the first init container may have run"),
        pytest.param("W W", "W", "137 waiting", "waiting", id="the second did not"),
        pytest.param("W W F W", "W", "137 137 kept waiting", "waiting", id="initialization failed half-way"),
        pytest.param("W W S", "W", "137 137 kept", "137", id="initialization went through"),
        pytest.param("W W W<S", "W", "137 137 137", "137", id="initialization went through once"),
        pytest.param("W W W<F", "W", "137 137 137", "waiting", id="initialization never went through"),
        pytest.param("W", "R", "137", "137", id="what runs proves that initialization went through"),
        pytest.param("W", "S", "137", "kept", id="so does what has ended, and its end stays"),
        pytest.param("S", "S F", "kept", "kept kept", id="all ends are known"),
        pytest.param("R", "W", "137", "waiting", id="an init container that ran when it was last seen"),
    ],
)
def test_containers(init, regular, expected_init, expected_regular):
    pod = make_pod("0", init=[f"i{n}" for n in range(len(init.split()))])
    status = end_status(pod, pod_status(init, regular))
    assert " ".join(map(shown, status.init_container_statuses)) == expected_init
    assert " ".join(map(shown, status.container_statuses)) == expected_regular


@pytest.mark.parametrize(
    ("source", "phase", "expected"),
    [
        pytest.param("", "Pending", "Failed", id="a pod that never ran has failed"),
        pytest.param("", "Running", "Failed", id="so has one that ran to nobody's knowledge"),
        pytest.param("", "", "Failed", id="or of which nothing is known"),
        pytest.param("", "Succeeded", "Succeeded", id="success stays"),
        pytest.param("", "Failed", "Failed", id="failure stays"),
        pytest.param("file", "Running", "Running", id="a static pod may be back at any time"),
    ],
)
def test_phase(source, phase, expected):
    assert end_status(make_pod("0", source=source), pod_status("", "S", phase)).phase == expected


@pytest.mark.parametrize(
    ("state", "started", "expected"),
    [
        pytest.param("R", True, True, id="a sidecar that has started"),
        pytest.param("R", False, False, id="a sidecar that has not"),
        pytest.param("S", False, False, id="the end of a sidecar is no success"),
    ],
)
def test_a_sidecar_that_comes_last(state, started, expected):
    pod = make_pod("0", init=(make_container("i0", restart_policy="Always"),))
    status = pod_status(state, "W")
    sidecar = replace(status.init_container_statuses[0], started=started)
    assert is_initialized(pod, replace(status, init_container_statuses=(sidecar,))) is expected


def test_a_pod_of_whose_init_containers_nothing_is_known():
    assert not is_initialized(make_pod("0", init=("i0",)), PodStatus())
    assert count_begun(()) == 0


def test_a_pod_that_was_reported_as_ready_to_the_last_is_not_any_more():
    ready = tuple(PodCondition(type=kind, status="True") for kind in ("Initialized", "Ready", "ContainersReady"))
    ended = end_status(make_pod("main"), PodStatus(phase="Running", conditions=ready))
    assert [(each.type, each.status, each.reason) for each in ended.conditions] == [
        ("Initialized", "True", ""),
        ("Ready", "False", "PodFailed"),
        ("ContainersReady", "False", "PodFailed"),
    ]
