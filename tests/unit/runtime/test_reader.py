"""CRI answers as records: grouping, order, addresses, states, annotations."""

from datetime import UTC, datetime

import pytest

from klet.api.container_status import ContainerUser, LinuxContainerUser
from klet.cri.errors import BadAnswer
from klet.model.pods import PodUID
from klet.model.runtime import GivenResources, RuntimeContainerState
from klet.runtime.reader import PodReader, build_status, from_nanoseconds, group_listed
from klet.simulation.fake_host import MemoryTerminationFiles
from klet.testing.fake_runtime.logs import MemorySink
from klet.wire import cri_v1_pb2 as cri

UID = PodUID("u-1")
SECOND = 10**9
LABELS = {
    "io.kubernetes.pod.name": "web",
    "io.kubernetes.pod.namespace": "default",
    "io.kubernetes.pod.uid": "u-1",
    "io.kubernetes.container.name": "main",
}


def sandbox(
    attempt: int = 0,
    *,
    ready: bool = True,
    created: int = 1,
    ips: tuple[str, ...] = ("10.0.0.1",),
    network: int = cri.POD,
) -> cri.PodSandboxStatus:
    return cri.PodSandboxStatus(
        id=f"s{attempt}-{created}",
        metadata=cri.PodSandboxMetadata(name="web", namespace="default", uid="u-1", attempt=attempt),
        state=cri.SANDBOX_READY if ready else cri.SANDBOX_NOTREADY,
        created_at=created * SECOND,
        network=cri.PodSandboxNetworkStatus(
            ip=ips[0] if ips else "", additional_ips=[cri.PodIP(ip=ip) for ip in ips[1:]]
        ),
        linux=cri.LinuxPodSandboxStatus(namespaces=cri.Namespace(options=cri.NamespaceOption(network=network))),
    )


def container(id_: str = "c", *, state: int = cri.CONTAINER_RUNNING, created: int = 1, **more) -> cri.ContainerStatus:
    return cri.ContainerStatus(
        id=id_,
        metadata=cri.ContainerMetadata(name="main", attempt=2),
        state=state,
        created_at=created * SECOND,
        started_at=(created + 1) * SECOND,
        finished_at=(created + 2) * SECOND,
        exit_code=7,
        image=cri.ImageSpec(image="docker.io/library/busybox:1", user_specified_image="busybox:1"),
        image_ref="ref",
        reason="Error",
        message="bang",
        labels=LABELS,
        log_path="/logs/main/2.log",
        **more,
    )


def record(status: cri.ContainerStatus):
    return build_status(UID, [], [status], {status.id: "s"}).containers[0]


def test_lists_are_grouped_by_pod():
    sandboxes = [
        cri.PodSandbox(id="s1", metadata=cri.PodSandboxMetadata(name="a", namespace="x", uid="u-a")),
        cri.PodSandbox(
            id="s2",
            metadata=cri.PodSandboxMetadata(name="b", namespace="x", uid="u-b"),
            state=cri.SANDBOX_NOTREADY,
        ),
    ]
    containers = [
        cri.Container(id="c1", state=cri.CONTAINER_RUNNING, labels={"io.kubernetes.pod.uid": "u-a"}),
        cri.Container(id="c2", state=cri.CONTAINER_CREATED, labels={"io.kubernetes.pod.uid": "u-a"}),
        cri.Container(id="c3", state=cri.CONTAINER_EXITED, labels=LABELS),
        cri.Container(id="stranger", state=cri.CONTAINER_RUNNING),
    ]
    found = group_listed(sandboxes, containers)
    assert {uid: pod.members() for uid, pod in found.items()} == {
        "u-a": {"s1": "running", "c1": "running", "c2": "created"},
        "u-b": {"s2": "exited"},
        "u-1": {"c3": "exited"},
    }
    assert (found[PodUID("u-a")].name, found[PodUID("u-a")].namespace) == ("a", "x")
    assert (found[UID].name, found[UID].namespace) == ("web", "default")


def test_lists_show_what_lives_and_where_it_came_from():
    sandboxes = [
        cri.PodSandbox(
            id=f"s{attempt}",
            metadata=cri.PodSandboxMetadata(name="a", namespace="x", uid="u-a", attempt=attempt),
            state=cri.SANDBOX_READY if attempt else cri.SANDBOX_NOTREADY,
            annotations={"kubernetes.io/config.source": "file"},
        )
        for attempt in (0, 1)
    ]
    container = cri.Container(
        id="c",
        pod_sandbox_id="s1",
        metadata=cri.ContainerMetadata(name="main", attempt=3),
        labels={"io.kubernetes.pod.uid": "u-a"},
        state=cri.CONTAINER_RUNNING,
    )
    shown = group_listed(sandboxes, [container])[PodUID("u-a")]
    assert [(found.id, found.attempt, found.ready) for found in shown.sandboxes] == [("s1", 1, True), ("s0", 0, False)]
    assert [(found.id, found.name, found.attempt) for found in shown.active_containers()] == [("c", "main", 3)]
    assert (shown.source, shown.is_live) == ("file", True)


def test_a_sandbox_of_nobody_is_no_pod():
    assert group_listed([cri.PodSandbox(id="s")], []) == {}


@pytest.mark.parametrize("uid", [".", "..", "../x", "a_b", "x" * 254])
def test_what_the_runtime_names_without_a_valid_uid_is_no_pod(uid):
    strange = cri.PodSandbox(id="s", metadata=cri.PodSandboxMetadata(name="a", namespace="x", uid=uid))
    container = cri.Container(id="c", state=cri.CONTAINER_RUNNING, labels={"io.kubernetes.pod.uid": uid})
    good = cri.PodSandbox(id="t", metadata=cri.PodSandboxMetadata(name="b", namespace="x", uid="u-b"))
    assert list(group_listed([strange, good], [container])) == ["u-b"]


def test_the_newest_sandbox_is_that_of_the_highest_attempt():
    status = build_status(UID, [sandbox(0, created=9), sandbox(2, created=5), sandbox(1, created=7)], [], {})
    assert [found.attempt for found in status.sandboxes] == [2, 1, 0]


def test_containers_are_sorted_newest_first():
    status = build_status(UID, [], [container("old", created=1), container("new", created=5)], {"old": "s", "new": "s"})
    assert [found.id for found in status.containers] == ["new", "old"]


@pytest.mark.parametrize(
    ("sandboxes", "expected"),
    [
        pytest.param([sandbox()], ("10.0.0.1",), id="one address"),
        pytest.param([sandbox(ips=("10.0.0.1", "fd00::1"))], ("10.0.0.1", "fd00::1"), id="two families"),
        pytest.param([sandbox(ips=("10.0.0.1", "nonsense"))], (), id="one invalid address drops all"),
        pytest.param([sandbox(ips=())], (), id="no address"),
        pytest.param([sandbox(ready=False)], (), id="a dead sandbox has none"),
        pytest.param([sandbox(1, ready=False), sandbox(0, ips=("10.0.0.2",))], (), id="only the newest counts"),
        pytest.param([], (), id="no sandbox"),
    ],
)
def test_addresses(sandboxes, expected):
    assert build_status(UID, sandboxes, [], {}).ips == expected


def test_name_and_namespace_come_from_the_sandbox_or_else_from_the_labels():
    with_sandbox = build_status(UID, [sandbox()], [], {})
    without = build_status(UID, [], [container()], {"c": "s"})
    nothing = build_status(UID, [], [], {})
    found = [(status.name, status.namespace) for status in (with_sandbox, without, nothing)]
    assert found == [("web", "default"), ("web", "default"), ("", "")]


def test_the_network_of_the_host():
    assert build_status(UID, [sandbox(network=cri.NODE)], [], {}).sandboxes[0].host_network
    assert not build_status(UID, [sandbox()], [], {}).sandboxes[0].host_network


def test_where_a_pod_came_from_is_that_of_its_newest_sandbox():
    static = sandbox()
    static.annotations["kubernetes.io/config.source"] = "file"
    assert build_status(UID, [static], [], {}).source == "file"
    assert build_status(UID, [sandbox()], [], {}).source == ""
    assert build_status(UID, [], [], {}).source == ""


@pytest.mark.parametrize(
    ("state", "expected", "started", "finished", "code", "reason", "message"),
    [
        pytest.param(cri.CONTAINER_CREATED, "created", None, None, 0, "", "", id="created"),
        pytest.param(cri.CONTAINER_RUNNING, "running", 2, None, 0, "", "", id="running"),
        pytest.param(cri.CONTAINER_EXITED, "exited", 2, 3, 7, "Error", "bang", id="exited"),
        pytest.param(cri.CONTAINER_UNKNOWN, "unknown", 2, None, 0, "", "", id="unknown"),
    ],
)
def test_what_each_state_shows(state, expected, started, finished, code, reason, message):
    found = record(container(state=state))
    assert found.state is RuntimeContainerState(expected)
    assert found.created_at == from_nanoseconds(SECOND)
    assert found.started_at == (None if started is None else from_nanoseconds(started * SECOND))
    assert found.finished_at == (None if finished is None else from_nanoseconds(finished * SECOND))
    assert (found.exit_code, found.reason, found.message) == (code, reason, message)
    assert (found.image, found.image_ref, found.log_path) == (
        "docker.io/library/busybox:1",
        "ref",
        "/logs/main/2.log",
    )
    assert (found.name, found.attempt, found.sandbox_id) == ("main", 2, "s")


BROKEN_OFF = "failed to create containerd task: failed to create shim task: context canceled: unknown"


@pytest.mark.parametrize(
    ("given", "state"),
    [
        pytest.param({}, RuntimeContainerState.CREATED, id="the start was broken off"),
        pytest.param(
            {"message": "failed to start shim: start failed: unix:///run/s/1: signal: killed: unknown"},
            RuntimeContainerState.CREATED,
            id="so was that of its shim",
        ),
        pytest.param({"message": "no such file"}, RuntimeContainerState.EXITED, id="it cannot be started"),
        pytest.param({"started_at": SECOND}, RuntimeContainerState.EXITED, id="it ran"),
        pytest.param({"reason": "Error"}, RuntimeContainerState.EXITED, id="it ended by itself and said so"),
    ],
)
def test_a_start_that_was_broken_off_is_no_failure(given, state):
    ended = container(state=cri.CONTAINER_EXITED)
    for field, value in ({"reason": "StartError", "message": BROKEN_OFF, "started_at": 0} | given).items():
        setattr(ended, field, value)
    assert record(ended).state is state


@pytest.mark.parametrize(
    ("annotations", "spec_hash", "restarts"),
    [
        pytest.param(
            {"io.kubernetes.container.hash": "8e45cbd0", "io.kubernetes.container.restartCount": "12"},
            0x8E45CBD0,
            12,
            id="as klet wrote them",
        ),
        pytest.param({}, 0, 0, id="missing"),
        pytest.param(
            {"io.kubernetes.container.hash": "xyz", "io.kubernetes.container.restartCount": "many"},
            0,
            0,
            id="unreadable",
        ),
    ],
)
def test_annotations_are_read_back(annotations, spec_hash, restarts):
    found = record(container(annotations=annotations))
    assert (found.spec_hash, found.restart_count) == (spec_hash, restarts)


def test_instants_keep_their_microseconds():
    assert from_nanoseconds(1_893_456_000_123_456_789) == datetime(2030, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, None, id="nothing"),
        pytest.param({"cpu_shares": 102}, GivenResources(cpu_request=100), id="shares, rounded up"),
        pytest.param({"cpu_shares": 2}, GivenResources(cpu_request=2), id="the fewest shares"),
        pytest.param({"cpu_shares": 1}, None, id="fewer are none"),
        pytest.param({"cpu_quota": 50000, "cpu_period": 100000}, GivenResources(cpu_limit=500), id="a quota"),
        pytest.param({"cpu_quota": -1, "cpu_period": 100000}, None, id="no quota"),
        pytest.param({"cpu_quota": 50000}, None, id="a quota without a period"),
        pytest.param({"memory_limit_in_bytes": 1 << 20}, GivenResources(memory_limit=1 << 20), id="memory"),
        pytest.param({"memory_limit_in_bytes": -1}, None, id="memory without a limit"),
    ],
)
def test_what_the_runtime_says_a_container_has(given, expected):
    resources = cri.ContainerResources(linux=cri.LinuxContainerResources(**given))
    assert record(container(resources=resources)).resources == expected


def test_a_runtime_that_says_nothing_of_resources_and_users():
    found = record(container())
    assert (found.resources, found.user, found.recursive_read_only) == (None, None, frozenset())


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        pytest.param(
            cri.ContainerUser(linux=cri.LinuxContainerUser(uid=1000, gid=3000, supplemental_groups=[3000, 4000])),
            ContainerUser(linux=LinuxContainerUser(uid=1000, gid=3000, supplemental_groups=(3000, 4000))),
            id="a user",
        ),
        pytest.param(cri.ContainerUser(), ContainerUser(), id="a user of another system"),
    ],
)
def test_the_user_of_a_container(user, expected):
    assert record(container(user=user)).user == expected


def test_mounts_of_which_nothing_below_can_be_written():
    mounts = [cri.Mount(container_path="/a", readonly=True, recursive_read_only=True), cri.Mount(container_path="/b")]
    assert record(container(mounts=mounts)).recursive_read_only == {"/a"}


def test_what_the_runtime_says_of_an_end_is_cut():
    status = container(state=cri.CONTAINER_EXITED)
    status.message, status.reason = "m" * 1_000_000, "r" * 1_000_000
    found = record(status)
    assert len(found.message) <= 16 * 1024
    assert len(found.reason) <= 1024


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        pytest.param("3", 3, id="a number"),
        pytest.param("-1", -1, id="as it is written"),
        pytest.param("9" * 4000, 0, id="one that no status could hold"),
        pytest.param("9" * 100_000, 0, id="one that cannot even be read"),
        pytest.param("x", 0, id="none"),
    ],
)
def test_restart_counts(annotation, expected):
    status = container(annotations={"io.kubernetes.container.restartCount": annotation})
    assert record(status).restart_count == expected


class MixedUp:
    """A runtime that answers with another container or sandbox than it was asked for."""

    async def list_pod_sandbox(self, _request):
        return cri.ListPodSandboxResponse(items=[cri.PodSandbox(id=self.sandbox)])

    async def list_containers(self, _request):
        return cri.ListContainersResponse(containers=[cri.Container(id="c-1", pod_sandbox_id="s0-1")])

    async def pod_sandbox_status(self, _request):
        return cri.PodSandboxStatusResponse(status=sandbox())

    async def container_status(self, _request):
        return cri.ContainerStatusResponse(status=container("c-2"))

    def __init__(self, sandbox_):
        self.sandbox = sandbox_


@pytest.mark.parametrize(("listed", "what"), [("s0-1", "container c-1"), ("s-9", "sandbox s-9")])
async def test_an_answer_about_something_else_is_not_believed(listed, what):
    reader = PodReader(runtime=MixedUp(listed), files=MemoryTerminationFiles(sink=MemorySink()))
    with pytest.raises(BadAnswer, match=f"asked for {what}"):
        await reader.read(UID)
