"""Questions for a log: the query, and which instance of a container is meant."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from klet.api.container import EphemeralContainer
from klet.api.container_status import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
)
from klet.api.pod import PodStatus
from klet.model.log_query import LogQuery, LogStream
from klet.server.log_query import LogRefusal, choose_instance, parse_log_query, refuse_stream
from klet.testing.builders import make_pod

UNDECODABLE = LogRefusal(400, '{"message": "Unable to decode query."}')
INVALID = LogRefusal(422, '{"message": "Invalid request."}')


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param({}, LogQuery(), id="nothing asked for"),
        pytest.param(
            {"follow": "true", "previous": "1", "timestamps": ""},
            LogQuery(follow=True, previous=True, timestamps=True),
            id="any value is true, also none",
        ),
        pytest.param({"follow": "false", "previous": "0"}, LogQuery(), id="false and zero are false"),
        pytest.param({"follow": "no"}, LogQuery(follow=True), id="any other word is true"),
        pytest.param(
            {"sinceSeconds": "60", "tailLines": "0", "limitBytes": "1"},
            LogQuery(since_seconds=60, tail_lines=0, limit_bytes=1),
            id="numbers",
        ),
        pytest.param(
            {"sinceTime": "2030-01-02T03:04:05Z"},
            LogQuery(since_time=datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)),
            id="an instant",
        ),
        pytest.param({"tail": "5", "tailLines": "9"}, LogQuery(tail_lines=5), id="the old name wins"),
        pytest.param({"tail": "all", "tailLines": "9"}, LogQuery(), id="all of it"),
        pytest.param({"tail": "", "tailLines": "9"}, LogQuery(tail_lines=9), id="the old name without a value"),
        pytest.param({"stream": "All"}, LogQuery(), id="all streams"),
        pytest.param({"unknown": "x"}, LogQuery(), id="what is not known is ignored"),
        pytest.param({"tailLines": "+5"}, LogQuery(tail_lines=5), id="a sign"),
        pytest.param({"tail": "abc"}, UNDECODABLE, id="no number"),
        pytest.param({"sinceSeconds": "1.5"}, UNDECODABLE, id="no whole number"),
        pytest.param({"tailLines": "1_0"}, UNDECODABLE, id="no number to Go"),
        pytest.param({"tailLines": " 1"}, UNDECODABLE, id="a blank"),
        pytest.param({"limitBytes": "9223372036854775808"}, UNDECODABLE, id="too large a number"),
        pytest.param({"sinceTime": "yesterday"}, UNDECODABLE, id="no instant"),
        pytest.param({"tail": "-1"}, INVALID, id="a negative number of lines"),
        pytest.param({"limitBytes": "0"}, INVALID, id="no bytes at all"),
        pytest.param({"sinceSeconds": "0"}, INVALID, id="since now"),
        pytest.param({"sinceSeconds": "5", "sinceTime": "2030-01-02T03:04:05Z"}, INVALID, id="since twice"),
        pytest.param({"stream": "Stdout"}, LogQuery(stream=LogStream.STDOUT), id="one stream"),
        pytest.param(
            {"stream": "Stderr", "tail": "all"}, LogQuery(stream=LogStream.STDERR), id="all of the other stream"
        ),
        pytest.param({"stream": "stdout"}, INVALID, id="a stream in small letters"),
        pytest.param({"stream": ""}, INVALID, id="a stream without a name"),
        pytest.param({"stream": "Stdout", "tailLines": "5"}, INVALID, id="the last lines of one stream"),
        pytest.param({"stream": "All", "tailLines": "5"}, LogQuery(tail_lines=5), id="the last lines of both"),
        pytest.param({"stream": "x", "tail": "abc"}, UNDECODABLE, id="what cannot be decoded comes first"),
    ],
)
def test_queries(query, expected):
    assert parse_log_query(query) == expected


@pytest.mark.parametrize(
    ("stream", "splits_streams", "refused"),
    [
        pytest.param(LogStream.STDERR, False, True, id="one stream with the gate off"),
        pytest.param(LogStream.STDERR, True, False, id="one stream with the gate on"),
        pytest.param(LogStream.ALL, False, False, id="both with the gate off"),
    ],
)
def test_one_stream_needs_the_gate(stream, splits_streams, refused):
    body = (
        'unable to return the given log stream: "Stderr". '
        "Please enable PodLogsQuerySplitStreams feature gate in kubelet"
    )
    expected = LogRefusal(400, body) if refused else None
    assert refuse_stream(LogQuery(stream=stream), splits_streams=splits_streams) == expected


def waiting(reason: str) -> ContainerState:
    return ContainerState(waiting=ContainerStateWaiting(reason=reason))


def terminated(container_id: str) -> ContainerState:
    return ContainerState(terminated=ContainerStateTerminated(exit_code=0, container_id=container_id))


RUNNING = ContainerState(running=ContainerStateRunning())
EMPTY = ContainerState()
WHERE = 'container "c" in pod "p"'


@pytest.mark.parametrize(
    ("state", "last", "previous", "expected"),
    [
        pytest.param(RUNNING, EMPTY, False, "now", id="running"),
        pytest.param(RUNNING, terminated("containerd://old"), True, "old", id="the one before"),
        pytest.param(RUNNING, EMPTY, True, f"previous terminated {WHERE} not found", id="there was none before"),
        pytest.param(RUNNING, terminated(""), True, f"previous terminated {WHERE} not found", id="it had no id"),
        pytest.param(terminated("containerd://dead"), terminated("containerd://old"), False, "dead", id="terminated"),
        pytest.param(terminated(""), terminated("containerd://old"), False, "old", id="terminated without an id"),
        pytest.param(terminated(""), EMPTY, False, f"{WHERE} is terminated", id="terminated without any id"),
        pytest.param(
            waiting("CrashLoopBackOff"), terminated("containerd://old"), False, "old", id="waiting after a run"
        ),
        pytest.param(
            waiting("X"), terminated(""), False, f"{WHERE} is terminated", id="waiting after a run without id"
        ),
        pytest.param(
            waiting("ErrImagePull"), EMPTY, False, f"{WHERE} is waiting to start: image can't be pulled", id="no image"
        ),
        pytest.param(
            waiting("ImagePullBackOff"),
            EMPTY,
            False,
            f"{WHERE} is waiting to start: trying and failing to pull image",
            id="still no image",
        ),
        pytest.param(
            waiting("ContainerCreating"), EMPTY, False, f"{WHERE} is waiting to start: ContainerCreating", id="waiting"
        ),
        pytest.param(EMPTY, EMPTY, False, f"{WHERE} is waiting to start - no logs yet", id="no state"),
        pytest.param(None, EMPTY, False, f"{WHERE} is not available", id="no status"),
    ],
)
def test_instances(state, last, previous, expected):
    pod = make_pod("c", name="p")
    if state is not None:
        status = ContainerStatus(name="c", state=state, last_state=last, container_id="containerd://now")
        pod = replace(pod, status=PodStatus(container_statuses=(status,)))
    found = choose_instance(pod, "c", previous=previous)
    assert found == (LogRefusal(400, expected) if expected.startswith(("container", "previous")) else expected)


def test_a_container_that_the_spec_does_not_have():
    expected = LogRefusal(404, 'container "x" not found in pod "p"')
    assert choose_instance(make_pod("c", name="p"), "x", previous=False) == expected


@pytest.mark.parametrize("kind", ["init_container_statuses", "ephemeral_container_statuses"])
def test_init_and_ephemeral_containers_have_logs_too(kind):
    pod = make_pod("main", init=["c"], name="p")
    if kind.startswith("ephemeral"):
        pod = make_pod("main", name="p")
        pod = replace(pod, spec=replace(pod.spec, ephemeral_containers=(EphemeralContainer(name="c"),)))
    status = ContainerStatus(name="c", state=RUNNING, container_id="containerd://now")
    pod = replace(pod, status=PodStatus(**{kind: (status,)}))
    assert choose_instance(pod, "c", previous=False) == "now"
