"""What may go of the dead."""

from datetime import timedelta

import pytest

from klet.model.runtime import ContainerId, RuntimeContainerState, SandboxId
from klet.runtime.gc_plan import (
    GcPolicy,
    ListedContainer,
    ListedSandbox,
    plan_after_death,
    plan_containers,
    plan_init_pruning,
    plan_links,
    plan_sandboxes,
)
from klet.testing.builders import NOW, make_container, make_pod, make_record, make_status

EXITED, RUNNING = RuntimeContainerState.EXITED, RuntimeContainerState.RUNNING
CREATED, UNKNOWN = RuntimeContainerState.CREATED, RuntimeContainerState.UNKNOWN


def container(id_: str, age: float, *, name: str = "c", uid: str = "live", state: RuntimeContainerState = EXITED):
    return ListedContainer(
        id=ContainerId(id_),
        uid=uid,
        name=name,
        state=state,
        created_at=NOW - timedelta(seconds=age),
        sandbox_id=SandboxId("s"),
    )


def sandbox(id_: str, age: float, *, ready: bool = False, uid: str = "live"):
    return ListedSandbox(id=SandboxId(id_), uid=uid, is_ready=ready, created_at=NOW - timedelta(seconds=age))


CRASHED = [container("e1", 4), container("e2", 3), container("e3", 2), container("e4", 1)]


@pytest.mark.parametrize(
    ("listed", "policy", "expected"),
    [
        pytest.param(
            [*CRASHED, container("now", 0, state=RUNNING)],
            GcPolicy(),
            ["e1", "e2", "e3"],
            id="of a container that crashed four times the last end is kept",
        ),
        pytest.param(
            [*CRASHED, container("next", 0, state=CREATED)],
            GcPolicy(),
            ["e1", "e2", "e3"],
            id="a container that is about to start does not push out the one before it",
        ),
        pytest.param(
            [container("old", 9, state=CREATED), *CRASHED],
            GcPolicy(),
            ["old", "e1", "e2", "e3"],
            id="a container that was created and never started is dead once there is a newer one",
        ),
        pytest.param(
            [container("u", 9, state=UNKNOWN), container("e", 1)],
            GcPolicy(),
            ["u"],
            id="one in unknown state is dead too",
        ),
        pytest.param(
            [container("a", 5, state=RUNNING), container("b", 4, state=RUNNING)], GcPolicy(), [], id="running"
        ),
        pytest.param(CRASHED, GcPolicy(max_per_container=0), ["e1", "e2", "e3", "e4"], id="none is kept"),
        pytest.param(CRASHED, GcPolicy(max_per_container=2), ["e1", "e2"], id="two are kept"),
        pytest.param(CRASHED, GcPolicy(max_per_container=-1), [], id="no limit"),
        pytest.param(
            CRASHED, GcPolicy(min_age=timedelta(seconds=3)), ["e1"], id="those that are too young do not count"
        ),
        pytest.param(
            [container("e", 1, name="a"), container("f", 2, name="b")], GcPolicy(), [], id="each container for itself"
        ),
        pytest.param(
            [container("e", 1), container("f", 2, uid="other")], GcPolicy(), [], id="the same name in another pod"
        ),
        pytest.param(
            [container("g1", 2, uid="gone"), container("g2", 1, uid="gone"), container("e", 3)],
            GcPolicy(),
            ["g1", "g2"],
            id="of a pod that is gone nothing is kept",
        ),
        pytest.param(
            [container("g", 1, uid="gone", state=RUNNING)], GcPolicy(), [], id="what runs is not removed, gone or not"
        ),
        pytest.param(
            [container("g", 1, uid="gone")], GcPolicy(min_age=timedelta(seconds=9)), [], id="a young one of a gone pod"
        ),
        pytest.param(
            [container(f"{name}{age}", age, name=name) for name in "ab" for age in (4, 3, 2, 1)],
            GcPolicy(max_per_container=-1, max_containers=4),
            ["a4", "a3", "b4", "b3"],
            id="too many in all: the same number for each container",
        ),
        pytest.param(
            [container("a", 1, name="a"), container("b", 3, name="b"), container("c", 2, name="c")],
            GcPolicy(max_per_container=-1, max_containers=1),
            ["b", "c"],
            id="more containers than the limit: at least one each, and then the oldest of all go",
        ),
        pytest.param(
            [container("a", 1, name="a"), container("b", 3, name="b")],
            GcPolicy(max_containers=0),
            ["b", "a"],
            id="none in all",
        ),
        pytest.param(
            [container("a", 1, name="a"), container("b", 3, name="b")],
            GcPolicy(max_containers=2),
            [],
            id="it just fits",
        ),
        pytest.param([], GcPolicy(max_containers=0), [], id="nothing"),
    ],
)
def test_containers(listed, policy, expected):
    found = plan_containers(listed, policy, removable={"gone"}, now=NOW)
    assert [each.id for each in found] == expected


@pytest.mark.parametrize(
    ("sandboxes", "occupied", "expected"),
    [
        pytest.param([sandbox("s", 1, uid="gone")], (), ["s"], id="dead and empty, of a pod that is gone"),
        pytest.param([sandbox("s", 1, uid="gone", ready=True)], (), [], id="ready, of a pod that is gone"),
        pytest.param([sandbox("s", 1, uid="gone")], ("s",), [], id="dead, but holding a container"),
        pytest.param([sandbox("s", 1)], (), [], id="the only one of a live pod"),
        pytest.param([sandbox("s", 1, ready=True)], (), [], id="the ready one of a live pod"),
        pytest.param([sandbox("old", 2), sandbox("new", 1)], (), ["old"], id="two dead ones of a live pod"),
        pytest.param(
            [sandbox("old", 2), sandbox("new", 1, ready=True)], (), ["old"], id="a dead one beside the ready one"
        ),
        pytest.param([sandbox("old", 2), sandbox("new", 1)], ("old",), [], id="the older one holds a container"),
        pytest.param(
            [sandbox("a", 3, uid="gone"), sandbox("b", 2, uid="gone", ready=True), sandbox("c", 1, uid="gone")],
            (),
            ["c", "a"],
            id="of a pod that is gone all but the ready one",
        ),
    ],
)
def test_sandboxes(sandboxes, occupied, expected):
    assert list(plan_sandboxes(sandboxes, occupied=occupied, removable={"gone"})) == expected


LONG_ID = "0123456789abcdef"


@pytest.mark.parametrize(
    ("state", "name", "removed"),
    [
        pytest.param(None, f"p_n_c-{LONG_ID}.log", True, id="its container is gone"),
        pytest.param(EXITED, f"p_n_c-{LONG_ID}.log", True, id="its container has ended"),
        pytest.param(RUNNING, f"p_n_c-{LONG_ID}.log", False, id="its container runs: the log is being rotated"),
        pytest.param(CREATED, f"p_n_c-{LONG_ID}.log", False, id="its container is being started"),
        pytest.param(UNKNOWN, f"p_n_c-{LONG_ID}.log", False, id="nobody knows about its container"),
        pytest.param(RUNNING, "p_n_c-01234567.log", False, id="a long name whose id was cut"),
        pytest.param(RUNNING, "p_n_c-01234.log", True, id="too little is left of the id"),
        pytest.param(RUNNING, "what.log", True, id="no id at all"),
    ],
)
def test_links_that_lead_nowhere(state, name, removed):
    states = {} if state is None else {ContainerId(LONG_ID): state}
    assert plan_links([name], states) == ((name,) if removed else ())


@pytest.mark.parametrize(
    ("keep", "removable", "expected"),
    [
        pytest.param(1, False, ["a-0", "a-1"], id="the newest end of each container is kept"),
        pytest.param(2, False, ["a-0"], id="the two newest"),
        pytest.param(0, False, ["a-0", "a-1"], id="one at least"),
        pytest.param(-1, False, ["a-0", "a-1"], id="one also without a limit"),
        pytest.param(1, True, ["a-0", "a-1", "a-2", "b-0"], id="all that has ended of a pod that is gone"),
    ],
)
def test_after_a_death(keep, removable, expected):
    pod = make_pod("a", "b", "c")
    records = [make_record(pod, "a", EXITED, restarts=restarts) for restarts in range(3)]
    records += [make_record(pod, "a", RUNNING, restarts=3), make_record(pod, "b", EXITED), make_record(pod, "c")]
    found = plan_after_death(make_status(pod, *records), keep=keep, is_removable=removable)
    assert sorted(record.id for record in found) == expected


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        pytest.param({}, [], id="nothing ran"),
        pytest.param({"init": ["exited"]}, [], id="the only end is kept"),
        pytest.param({"init": ["exited", "exited", "exited"]}, ["init-1", "init-0"], id="all but the last end go"),
        pytest.param({"init": ["exited", "running"]}, [], id="what runs is not counted"),
        pytest.param({"init": ["exited", "exited", "created"]}, ["init-0"], id="nor what was only created"),
        pytest.param({"init": ["exited", "unknown"]}, ["init-0"], id="an unknown one is over too"),
        pytest.param({"main": ["exited", "exited"]}, [], id="regular containers are left to the collector"),
        pytest.param({"side": ["exited", "exited"], "init": ["exited"]}, ["side-0"], id="sidecars count as well"),
    ],
)
def test_ends_of_init_containers(states, expected):
    pod = make_pod("main", init=("init", make_container("side", restart_policy="Always")))
    records = [
        make_record(pod, name, RuntimeContainerState(state), restarts=life)
        for name, lives in states.items()
        for life, state in enumerate(lives)
    ]
    assert [record.id for record in plan_init_pruning(pod, make_status(pod, *records))] == expected
