"""Container statuses: from records of the runtime and what was reported before, row by row."""

import pytest
from msgspec.structs import replace

from klet.api.container import ResourceRequirements, VolumeMount
from klet.api.container_status import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    ContainerUser,
    LinuxContainerUser,
    VolumeMountStatus,
)
from klet.api.container_status import ContainerState as Shown
from klet.api.quantity import Quantity
from klet.api.times import Time
from klet.model.allocation import Actuated, ContainerAllocation, PodAllocation, PodResources, desired_allocation
from klet.model.runtime import ContainerRecord, GivenResources, RuntimeContainerState, StartFailure
from klet.model.runtime import RuntimeContainerState as Seen
from klet.status.containers import (
    StatusFeatures,
    build_container_statuses,
    build_resources,
    cut_messages,
    overlay_waiting,
)
from klet.testing.builders import NOW, make_container, make_pod, make_record, make_status, with_resources


def ended(message: str) -> ContainerState:
    return ContainerState(terminated=ContainerStateTerminated(exit_code=1, message=message))


@pytest.mark.parametrize(
    ("pod", "message", "expected"),
    [
        pytest.param(make_pod("a"), "x" * 13000, "x" * 12288, id="one container has it all"),
        pytest.param(make_pod("a", "b", init=("c",)), "x" * 13000, "x" * 4096, id="three share it"),
        pytest.param(make_pod("a", "b"), "x" * 6144, "x" * 6144, id="it just fits"),
        pytest.param(make_pod("a"), "x" * 12287 + "é", "x" * 12287, id="no half of a character is left"),
    ],
)
def test_termination_messages_are_cut_to_the_containers_share(pod, message, expected):
    status = ContainerStatus(name="a", state=ended(message), last_state=ended(message))
    assert cut_messages(pod, [status]) == (
        ContainerStatus(name="a", state=ended(expected), last_state=ended(expected)),
    )


@pytest.mark.parametrize(
    ("containers", "message", "longest"),
    [
        pytest.param(1, "x" * 10_240, 10_240, id="it just fits"),
        pytest.param(1, "x" * 20_000, 10_240, id="too long for one"),
        pytest.param(1, "é" * 20_000, 10_240, id="too long for one in bytes"),
        pytest.param(256, "x" * 20_000, 1024, id="many containers share what a pod may have"),
        pytest.param(10_000, "x" * 20_000, 128, id="some of it is always shown"),
    ],
)
def test_why_a_container_waits_is_cut(containers, message, longest):
    pod = make_pod(*(f"c{number}" for number in range(containers)))
    status = ContainerStatus(name="a", state=waiting("Why", message))
    [cut] = cut_messages(pod, [status])
    shown = cut.state.waiting.message
    assert shown == message or (shown.endswith("…") and message.startswith(shown[:-1]))
    assert longest - 4 < len(shown.encode()) <= longest


def test_other_states_stay_as_they_are():
    status = ContainerStatus(name="a", state=waiting("Why", "x" * 10_000), last_state=ContainerState())
    assert cut_messages(make_pod("a"), [status]) == (status,)


def status_of(pod, *records, previous: ContainerStatus | None = None, name: str = "a") -> ContainerStatus:
    before = () if previous is None else (previous,)
    every = (*pod.spec.containers, *pod.spec.init_containers)
    containers = [container for container in every if container.name == name]
    seen = make_status(pod, *records)
    resources = PodResources(admitted=desired_allocation(pod))
    (status,) = build_container_statuses(pod, containers, seen, before, resources=resources, runtime_name="containerd")
    return status


def waiting(reason: str = "", message: str = "") -> ContainerState:
    return ContainerState(waiting=ContainerStateWaiting(reason=reason, message=message))


RUNNING = ContainerState(running=ContainerStateRunning(started_at=Time.of(NOW)))
LOST = "The container could not be located when the pod was deleted.  The container used to be Running"
LOST_AT_THE_END = "The container could not be located when the pod was terminated"
GONE = ContainerState(terminated=ContainerStateTerminated(exit_code=137, reason="ContainerStatusUnknown", message=LOST))


def before(state: ContainerState, *, last: ContainerState | None = None, restarts: int = 0) -> ContainerStatus:
    return ContainerStatus(name="a", state=state, last_state=last or ContainerState(), restart_count=restarts)


@pytest.mark.parametrize(
    ("pod", "name", "expected"),
    [
        pytest.param(make_pod("a"), "a", "ContainerCreating", id="a pod without init containers"),
        pytest.param(make_pod("a", init=("i",)), "a", "PodInitializing", id="a pod with init containers"),
        pytest.param(make_pod("a", init=("i",)), "i", "PodInitializing", id="its init containers too"),
    ],
)
def test_a_container_of_which_nothing_is_known_waits(pod, name, expected):
    status = status_of(pod, name=name)
    assert status == ContainerStatus(name=name, image=pod.spec.containers[0].image, state=waiting(expected))
    assert (status.resources, status.user, status.allocated_resources) == (None, None, {})


@pytest.mark.parametrize(
    ("deleted", "previous", "state", "last", "restarts"),
    [
        pytest.param(False, before(waiting("ErrImagePull"), restarts=2), "waiting", None, 2, id="it waited"),
        pytest.param(
            False,
            before(waiting("X"), last=ended("old"), restarts=2),
            "waiting",
            ended("old"),
            2,
            id="it had run before",
        ),
        pytest.param(False, before(RUNNING), "waiting", GONE, 1, id="it ran, and is counted as restarted"),
        pytest.param(True, before(RUNNING), "waiting", GONE, 0, id="it ran, and its pod is being deleted"),
        pytest.param(
            False,
            before(RUNNING, last=ended("old"), restarts=3),
            "waiting",
            ended("old"),
            3,
            id="an end is known already",
        ),
        pytest.param(False, before(ended("x"), restarts=5), "ended", None, 5, id="its end stays"),
        pytest.param(True, before(ended("x"), restarts=5), "ended", None, 5, id="also while its pod is being deleted"),
        pytest.param(False, before(ContainerState(), restarts=1), "waiting", None, 1, id="nothing was said of it"),
    ],
)
def test_a_container_without_a_record(deleted, previous, state, last, restarts):
    status = status_of(make_pod("a", deleted=deleted), previous=previous)
    assert status.state == (previous.state if state == "ended" else waiting("ContainerCreating"))
    assert (status.last_state, status.restart_count) == (last or ContainerState(), restarts)


@pytest.mark.parametrize(
    ("seen", "previous", "expected", "restarts"),
    [
        pytest.param(Seen.RUNNING, None, RUNNING, 2, id="running"),
        pytest.param(Seen.CREATED, None, waiting(), 2, id="created"),
        pytest.param(
            Seen.EXITED,
            None,
            ContainerState(
                terminated=ContainerStateTerminated(
                    exit_code=3,
                    reason="Error",
                    started_at=Time.of(NOW),
                    finished_at=Time.of(NOW),
                    container_id="containerd://a-2",
                )
            ),
            2,
            id="exited",
        ),
        pytest.param(
            Seen.UNKNOWN,
            before(RUNNING, restarts=4),
            ContainerState(
                terminated=ContainerStateTerminated(
                    exit_code=137, reason="ContainerStatusUnknown", message=LOST_AT_THE_END
                )
            ),
            5,
            id="unknown, and it ran",
        ),
        pytest.param(Seen.UNKNOWN, before(waiting("X")), waiting(), 2, id="unknown, and it waited"),
        pytest.param(Seen.UNKNOWN, before(ended("x")), waiting(), 2, id="unknown, and it had ended"),
        pytest.param(Seen.UNKNOWN, None, waiting(), 2, id="unknown, and nothing was said of it"),
    ],
)
def test_what_the_runtime_shows(seen, previous, expected, restarts):
    pod = make_pod("a")
    status = status_of(pod, make_record(pod, "a", seen, exit_code=3, restarts=2), previous=previous)
    assert (status.state, status.restart_count) == (expected, restarts)
    assert (status.container_id, status.image_id) == ("containerd://a-2", "sha256:1")


def test_only_the_two_newest_records_count_and_the_rest_of_the_second_is_lost():
    pod = make_pod("a")
    codes = [make_record(pod, "a", Seen.EXITED, exit_code=code, restarts=code) for code in (1, 2)]
    status = status_of(pod, *codes, make_record(pod, "a", restarts=3))
    assert status.last_state.terminated.exit_code == 2
    assert (status.restart_count, status.state) == (3, RUNNING)


def test_the_last_state_is_not_inherited_once_there_is_a_record():
    pod = make_pod("a")
    status = status_of(pod, make_record(pod, "a"), previous=before(waiting("X"), last=ended("old")))
    assert status.last_state == ContainerState()


def test_a_second_record_that_never_ran_is_shown_as_it_is():
    pod = make_pod("a")
    status = status_of(pod, make_record(pod, "a", Seen.CREATED), make_record(pod, "a", restarts=1))
    assert status.last_state == waiting()


def test_resources_and_user():
    pod = make_pod(with_resources(make_container("a"), requests={"cpu": "1"}))
    user = ContainerUser(linux=LinuxContainerUser(uid=7, gid=8, supplemental_groups=(8,)))
    status = status_of(pod, replace(make_record(pod, "a"), user=user))
    requests = pod.spec.containers[0].resources.requests
    assert (status.user, status.allocated_resources, status.resources.requests) == (user, requests, requests)


def mounted(*, read_only: bool = True, mode: str | None = None) -> VolumeMount:
    return VolumeMount(name="v", mount_path="/data", read_only=read_only, recursive_read_only=mode)


REPORTED = before(waiting("X"))


@pytest.mark.parametrize(
    ("mount", "has_record", "mounts", "expected"),
    [
        pytest.param(mounted(read_only=False), False, (), None, id="a mount that can be written"),
        pytest.param(mounted(), False, (), "Disabled", id="nobody asked for it"),
        pytest.param(mounted(mode="Disabled"), True, (), "Disabled", id="it was refused"),
        pytest.param(mounted(mode="Enabled"), False, (), "Enabled", id="without it the container does not start"),
        pytest.param(mounted(mode="IfPossible"), False, (), "Disabled", id="nobody knows yet"),
        pytest.param(mounted(mode="IfPossible"), True, (), "Disabled", id="it was not possible"),
        pytest.param(mounted(mode="IfPossible"), True, ("/data",), "Enabled", id="it was possible"),
    ],
)
def test_whether_a_mount_is_read_only_all_the_way_down(mount, has_record, mounts, expected):
    pod = make_pod(replace(make_container("a"), volume_mounts=(mount,)))
    record = replace(make_record(pod, "a"), recursive_read_only=frozenset(mounts))
    status = status_of(pod, *([record] if has_record else []))
    assert status.volume_mounts == (
        VolumeMountStatus(name="v", mount_path="/data", read_only=mount.read_only, recursive_read_only=expected),
    )


FAILURE = StartFailure("CrashLoopBackOff", "back-off 10s")


@pytest.mark.parametrize(
    ("state", "restartable", "failures", "expected", "last"),
    [
        pytest.param(ended("x"), {"a"}, {"a": FAILURE}, "overlaid", ended("x"), id="its end is the last state then"),
        pytest.param(waiting("X"), {"a"}, {"a": FAILURE}, "overlaid", ended("old"), id="the last state stays"),
        pytest.param(ended("x"), {"a"}, {}, "kept", ended("old"), id="no failure is known: it shows its end"),
        pytest.param(ended("x"), set(), {"a": FAILURE}, "kept", ended("old"), id="it is not started again"),
        pytest.param(ended("x"), {"b"}, {"b": FAILURE}, "kept", ended("old"), id="another container failed"),
    ],
)
def test_why_a_container_waits(state, restartable, failures, expected, last):
    status = before(state, last=ended("old"), restarts=4)
    (shown,) = overlay_waiting([status], failures, frozenset(restartable))
    assert shown.state == (waiting(FAILURE.reason, FAILURE.message) if expected == "overlaid" else state)
    assert (shown.last_state, shown.restart_count) == (last, 4)


def resources(text: str) -> ResourceRequirements:
    """`limits.cpu=1 requests.memory=1Mi`"""
    found: dict[str, dict[str, Quantity]] = {"limits": {}, "requests": {}}
    for part in text.split():
        name, _, amount = part.partition("=")
        kind, _, resource = name.partition(".")
        found[kind][resource] = Quantity.parse(amount)
    return ResourceRequirements(**found)


def texts(found: ResourceRequirements) -> str:
    every = [("limits", found.limits), ("requests", found.requests)]
    return " ".join(f"{kind}.{name}={amount}" for kind, given in every for name, amount in sorted(given.items()))


def reported(text: str, *, container: str = "main-0", running: bool = True) -> ContainerStatus:
    state = Shown(running=ContainerStateRunning()) if running else Shown()
    return ContainerStatus(
        name="main", container_id=f"containerd://{container}", state=state, resources=resources(text)
    )


def running(
    admitted: str, actual: GivenResources | None, *, actuated: str = ""
) -> tuple[ContainerRecord, PodResources]:
    """A container that runs, whose spec names no resources, and what is known of its resources."""
    known = PodResources(
        admitted=PodAllocation(containers=(ContainerAllocation(name="main", given=resources(admitted)),)),
        actuated=Actuated(containers={"main": resources(actuated)}) if actuated else Actuated(),
        actual={"main": actual} if actual is not None else {},
    )
    return make_record(make_pod("main"), "main"), known


BOTH = "limits.cpu=1 limits.memory=64Mi requests.cpu=100m requests.memory=32Mi"


@pytest.mark.parametrize(
    ("spec", "given", "expected"),
    [
        pytest.param(BOTH, None, BOTH, id="a runtime that says nothing"),
        pytest.param(
            BOTH,
            GivenResources(cpu_limit=500, cpu_request=50, memory_limit=16 << 20),
            "limits.cpu=500m limits.memory=16Mi requests.cpu=50m requests.memory=32Mi",
            id="what it says counts, but it never says the request of memory",
        ),
        pytest.param("", GivenResources(cpu_limit=500, cpu_request=50), "", id="nothing is added to a bare container"),
        pytest.param(
            "limits.memory=1Mi",
            GivenResources(cpu_limit=500, cpu_request=50, memory_limit=1 << 20),
            "limits.cpu=500m limits.memory=1Mi",
            id="nor to a part that the spec leaves out",
        ),
        pytest.param(
            "requests.cpu=1m", GivenResources(cpu_request=2), "requests.cpu=1m", id="less than the kernel takes"
        ),
        pytest.param("requests.cpu=3m", GivenResources(cpu_request=2), "requests.cpu=2m", id="more was asked for"),
        pytest.param("requests.cpu=1m", GivenResources(cpu_request=3), "requests.cpu=3m", id="more was given"),
        pytest.param("limits.cpu=5m", GivenResources(cpu_limit=10), "limits.cpu=5m", id="a tiny limit"),
        pytest.param("limits.cpu=11m", GivenResources(cpu_limit=10), "limits.cpu=10m", id="a larger limit"),
        pytest.param("limits.cpu=5m", GivenResources(cpu_limit=11), "limits.cpu=11m", id="a larger limit was given"),
        pytest.param(
            "limits.example.com/gpu=1 requests.example.com/gpu=1",
            GivenResources(cpu_request=2),
            "limits.example.com/gpu=1 requests.example.com/gpu=1",
            id="other resources stay as they are",
        ),
    ],
)
def test_a_running_container(spec, given, expected):
    record, known = running(spec, given)
    assert texts(build_resources(known, record, None)) == expected


OTHER = "limits.cpu=2 limits.memory=1Mi requests.cpu=20m requests.memory=2Mi"


@pytest.mark.parametrize(
    ("previous", "given", "expected"),
    [
        pytest.param(reported(OTHER), None, OTHER, id="what was reported of it stays"),
        pytest.param(
            reported(OTHER),
            GivenResources(cpu_limit=3000, cpu_request=30, memory_limit=3 << 20),
            "limits.cpu=3 limits.memory=3Mi requests.cpu=30m requests.memory=2Mi",
            id="the runtime knows better",
        ),
        pytest.param(reported(OTHER, container="main-9"), None, BOTH, id="another instance was reported"),
        pytest.param(reported(OTHER, running=False), None, BOTH, id="it was not running then"),
        pytest.param(ContainerStatus(name="main"), None, BOTH, id="nothing was reported"),
    ],
)
def test_what_was_reported_before(previous, given, expected):
    record, known = running(BOTH, given)
    assert texts(build_resources(known, record, previous)) == expected


@pytest.mark.parametrize(
    "state", [RuntimeContainerState.EXITED, RuntimeContainerState.CREATED, RuntimeContainerState.UNKNOWN]
)
def test_a_container_that_does_not_run_is_reported_with_what_it_would_get(state):
    record, known = running(BOTH, GivenResources(cpu_limit=1))
    record = replace(record, state=state)
    assert build_resources(known, record, reported(OTHER)) == resources(BOTH)


@pytest.mark.parametrize(
    ("actuated", "previous", "expected"),
    [
        pytest.param("requests.memory=8Mi", None, "8Mi", id="what it was created with counts"),
        pytest.param("requests.memory=8Mi", reported(OTHER), "8Mi", id="before what was reported"),
        pytest.param("requests.cpu=1", reported(OTHER), "2Mi", id="it was created without one"),
        pytest.param("", None, "32Mi", id="nobody knows: what was admitted"),
    ],
)
def test_the_request_of_memory_that_no_runtime_reports(actuated, previous, expected):
    record, known = running(BOTH, None, actuated=actuated)
    assert str(build_resources(known, record, previous).requests["memory"]) == expected


REMOVED = "The container is removed because RestartAllContainers in place"
ALL = StatusFeatures(restart_all=True, is_restarting=True)


def built_with(features, *records, previous=None, pod=None):
    pod = pod or make_pod("main")
    [status] = build_container_statuses(
        pod,
        pod.spec.containers,
        make_status(pod, *records),
        [previous] if previous else [],
        resources=PodResources(admitted=desired_allocation(pod)),
        runtime_name="containerd",
        features=features,
    )
    return status


@pytest.mark.parametrize(
    "state",
    [ContainerState(running=ContainerStateRunning()), ended("42")],
    ids=["it ran", "it had ended"],
)
def test_a_container_that_was_removed_to_restart_with_all_others(state):
    previous = ContainerStatus(name="main", state=state, restart_count=3)
    status = built_with(ALL, previous=previous)
    assert status.state == waiting("RestartingAllContainers", REMOVED)
    assert status.last_state.terminated == ContainerStateTerminated(
        exit_code=137, reason="RestartingAllContainers", message=REMOVED
    )
    assert status.restart_count == 4


def test_one_that_waited_already_is_not_counted_again():
    previous = ContainerStatus(name="main", state=waiting("RestartingAllContainers", REMOVED), restart_count=4)
    assert built_with(ALL, previous=previous).restart_count == 4


def test_one_that_is_lost_meanwhile_has_the_reason_of_all():
    pod = make_pod("main")
    previous = ContainerStatus(name="main", state=ContainerState(running=ContainerStateRunning()))
    record = make_record(pod, "main", Seen.UNKNOWN)
    assert built_with(ALL, record, previous=previous).state.terminated.reason == "RestartingAllContainers"


@pytest.mark.parametrize(
    ("is_on", "previous", "counted", "expected"),
    [
        pytest.param(True, ended("x"), 0, 6, id="the runtime counts from zero again: this is one more restart"),
        pytest.param(True, ended("x"), 9, 9, id="the runtime is ahead"),
        pytest.param(False, ended("x"), 0, 5, id="without the gate nothing is added"),
        pytest.param(True, ContainerState(running=ContainerStateRunning()), 0, 5, id="it was reported as running"),
    ],
)
def test_restart_counts_after_a_restart_of_all_under_another_kubelet(is_on, previous, counted, expected):
    before = ContainerStatus(name="main", state=previous, restart_count=5)
    record = make_record(make_pod("main"), "main", Seen.RUNNING, restarts=counted)
    assert built_with(StatusFeatures(restart_all=is_on), record, previous=before).restart_count == expected


@pytest.mark.parametrize(
    ("is_on", "signal", "expected"),
    [
        pytest.param(True, "SIGUSR1", "SIGUSR1", id="as the runtime reports it"),
        pytest.param(True, "", None, id="not if the runtime does not"),
        pytest.param(False, "SIGUSR1", None, id="nor without the gate"),
    ],
)
def test_the_stop_signal_is_shown(is_on, signal, expected):
    record = replace(make_record(make_pod("main"), "main", Seen.RUNNING), stop_signal=signal)
    assert built_with(StatusFeatures(stop_signals=is_on), record).stop_signal == expected
