"""The client against a gRPC server on a Unix socket: paths, deadlines, errors, sizes."""

import asyncio
import inspect
import re
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta

import grpc
import pytest
from grpc import aio

from klet.cri import calls
from klet.cri.client import CriClient, connect
from klet.cri.connection import MAX_MESSAGE_BYTES, open_connection
from klet.cri.errors import (
    BadAnswer,
    CriError,
    CriNotFound,
    DeadlineExceeded,
    ExecTimeout,
    InvalidRuntime,
    ResourceExhausted,
    Unavailable,
    Unimplemented,
)
from klet.cri.events import ContainerdEvents, CriEvents, EventKind
from klet.model.verbosity import REQUEST_STARTS, REQUESTS
from klet.wire import cri_v1_pb2 as pb
from klet.wire.methods import methods_of, service_handler

T = timedelta(seconds=100)
METHODS = {**methods_of(calls.RUNTIME_SERVICE), **methods_of(calls.IMAGE_SERVICE)}
GOOD = {
    "Version": pb.VersionResponse(version="1", runtime_name="r", runtime_version="1", runtime_api_version="v1"),
    "ImageFsInfo": pb.ImageFsInfoResponse(),
    "Status": pb.StatusResponse(status=pb.RuntimeStatus(conditions=[pb.RuntimeCondition(), pb.RuntimeCondition()])),
    "RunPodSandbox": pb.RunPodSandboxResponse(pod_sandbox_id="s"),
    "CreateContainer": pb.CreateContainerResponse(container_id="c"),
    "PullImage": pb.PullImageResponse(image_ref="r"),
    "Exec": pb.ExecResponse(url="u"),
    "Attach": pb.AttachResponse(url="u"),
    "PortForward": pb.PortForwardResponse(url="u"),
    "PodSandboxStatus": pb.PodSandboxStatusResponse(
        status=pb.PodSandboxStatus(
            id="s", metadata=pb.PodSandboxMetadata(name="p", namespace="n", uid="u"), created_at=1
        )
    ),
    "ContainerStatus": pb.ContainerStatusResponse(
        status=pb.ContainerStatus(
            id="c",
            metadata=pb.ContainerMetadata(name="m"),
            created_at=1,
            image=pb.ImageSpec(image="i"),
            image_ref="r",
        )
    ),
}


class Server:
    """Answers every call well, unless configured otherwise, and remembers what it saw."""

    def __init__(self):
        self.answers = {}
        self.seen = []
        self.deadlines = {}

    def behaviour(self, method):
        async def answer(request, context):
            self._note(method, context)
            recorded = self.answers.get(method.name)
            if isinstance(recorded, tuple):
                await context.abort(*recorded)
            if inspect.iscoroutinefunction(recorded):
                return await recorded()
            if callable(recorded):
                return recorded(request)
            return recorded or GOOD.get(method.name) or method.response()

        async def stream(request, context):
            self._note(method, context)
            for event in self.answers.get(method.name, ()):
                yield event

        return stream if method.streams_responses else answer

    def _note(self, method, context):
        self.seen.append(method.name)
        remaining = context.time_remaining()
        self.deadlines[method.name] = None if remaining is None or remaining > 1e6 else remaining

    @asynccontextmanager
    async def serving(self, path, services=(calls.RUNTIME_SERVICE, calls.IMAGE_SERVICE)):
        server = aio.server(options=[("grpc.max_send_message_length", -1)])
        for service in services:
            behaviours = {name: self.behaviour(method) for name, method in methods_of(service).items()}
            server.add_generic_rpc_handlers((service_handler(service, behaviours),))
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        try:
            yield
        finally:
            await server.stop(None)


@pytest.fixture
async def server():
    return Server()


@pytest.fixture
def socket(tmp_path):
    return tmp_path / "cri.sock"


@pytest.fixture
async def client(server, socket):
    async with server.serving(socket), connect(runtime_endpoint=f"unix://{socket}", timeout=T) as client:
        yield client


def snake(name):
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def nearly(seconds):
    """gRPC rounds a deadline up on the wire."""
    return None if seconds is None else pytest.approx(seconds, abs=5)


UNARY = [name for name, method in METHODS.items() if not method.streams_responses]
DEADLINES = {
    "RunPodSandbox": 200,
    "StopContainer": 130,
    "ExecSync": 130,
    "CheckpointContainer": 100,
    "PullImage": None,
}


@pytest.mark.parametrize("name", UNARY)
async def test_each_method_makes_its_call_with_its_deadline(client, server, name):
    method = METHODS[name]
    timed = {"timeout": 30} if "timeout" in method.request.DESCRIPTOR.fields_by_name else {}
    answer = await getattr(client, snake(name))(method.request(**timed))
    assert isinstance(answer, method.response)
    assert server.seen[-1] == name
    assert server.deadlines[name] == nearly(DEADLINES.get(name, 100))


async def test_a_long_checkpoint_has_the_longer_deadline(client, server):
    await client.checkpoint_container(pb.CheckpointContainerRequest(timeout=500))
    assert server.deadlines["CheckpointContainer"] == nearly(500)


async def test_a_command_without_a_limit_has_no_deadline(client, server):
    await client.exec_sync(pb.ExecSyncRequest(cmd=["x"]))
    assert server.deadlines["ExecSync"] is None


async def test_the_events_have_no_deadline(client, server):
    server.answers["GetContainerEvents"] = [
        pb.ContainerEventResponse(container_id="c", container_event_type=pb.CONTAINER_STOPPED_EVENT)
    ]
    async with aclosing(CriEvents(runtime=client).subscribe()) as stream:
        assert [(event.kind, event.container_id) async for event in stream] == [(EventKind.STOPPED, "c")]
    assert server.deadlines["GetContainerEvents"] is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.NOT_FOUND, CriNotFound),
        (grpc.StatusCode.UNAVAILABLE, Unavailable),
        (grpc.StatusCode.UNKNOWN, CriError),
    ],
)
async def test_the_runtimes_words_reach_the_caller(client, server, code, kind):
    server.answers["StopContainer"] = (code, "no such thing")
    with pytest.raises(CriError, match=r"^rpc error: code = \w+ desc = no such thing$") as caught:
        await client.stop_container(pb.StopContainerRequest(container_id="c"))
    assert type(caught.value) is kind


async def test_a_deadline_of_the_runtime_is_an_exec_timeout(client, server):
    server.answers["ExecSync"] = (grpc.StatusCode.DEADLINE_EXCEEDED, "timeout 2s exceeded")
    with pytest.raises(ExecTimeout, match=r'^command timed out: "a b" timed out after 2s$'):
        await client.exec_sync(pb.ExecSyncRequest(cmd=["a", "b"], timeout=2))


async def test_a_silent_runtime_is_given_up(server, socket):
    never = asyncio.Event()

    async def silent():
        await never.wait()

    server.answers["ListContainers"] = silent
    async with (
        server.serving(socket),
        connect(runtime_endpoint=f"unix://{socket}", timeout=timedelta(milliseconds=300)) as client,
    ):
        with pytest.raises(DeadlineExceeded):
            await client.list_containers(pb.ListContainersRequest())


async def test_answers_are_checked(client, server):
    server.answers["RunPodSandbox"] = pb.RunPodSandboxResponse()
    with pytest.raises(BadAnswer, match="PodSandboxId is not set"):
        await client.run_pod_sandbox(pb.RunPodSandboxRequest())


@pytest.mark.parametrize(
    ("size", "fits"),
    [(MAX_MESSAGE_BYTES - 64, True), (MAX_MESSAGE_BYTES + 64, False)],
    ids=["just under 16 MiB", "just over 16 MiB"],
)
async def test_the_size_of_answers_is_limited(client, server, size, fits):
    server.answers["ExecSync"] = pb.ExecSyncResponse(stdout=bytes(size))
    if fits:
        assert len((await client.exec_sync(pb.ExecSyncRequest())).stdout) == size
    else:
        with pytest.raises(ResourceExhausted):
            await client.exec_sync(pb.ExecSyncRequest())


async def test_containers_that_are_too_many_for_one_answer_are_listed_by_sandbox(client, server):
    """A few pods with hooks of a megabyte each must not blind the agent."""
    large = pb.Container(id="c", annotations={"hook": "x" * (MAX_MESSAGE_BYTES + 1)})

    def answer(request):
        if not request.filter.pod_sandbox_id:
            return pb.ListContainersResponse(containers=[large])
        return pb.ListContainersResponse(containers=[pb.Container(id=f"c of {request.filter.pod_sandbox_id}")])

    server.answers["ListContainers"] = answer
    server.answers["ListPodSandbox"] = pb.ListPodSandboxResponse(items=[pb.PodSandbox(id="s1"), pb.PodSandbox(id="s2")])
    listed = (await client.list_containers(pb.ListContainersRequest())).containers
    assert [each.id for each in listed] == ["c of s1", "c of s2"]
    one = pb.ContainerFilter(id="c")
    with pytest.raises(ResourceExhausted):
        await client.list_containers(pb.ListContainersRequest(filter=one))


async def test_images_can_live_at_another_endpoint(server, socket, tmp_path):
    images = Server()
    other = tmp_path / "images.sock"
    async with (
        server.serving(socket, [calls.RUNTIME_SERVICE]),
        images.serving(other, [calls.IMAGE_SERVICE]),
        connect(runtime_endpoint=str(socket), image_endpoint=f"unix://{other}", timeout=T) as client,
    ):
        await client.list_images(pb.ListImagesRequest())
    assert (server.seen, images.seen) == (["Version"], ["ImageFsInfo", "ListImages"])


async def test_connecting_needs_all_fields_of_the_version(server, socket):
    server.answers["Version"] = pb.VersionResponse(version="1", runtime_name="r", runtime_version="1")
    text = f'^validate CRI v1 runtime API for endpoint "unix://{socket}": not all fields are set in VersionResponse'
    async with server.serving(socket):
        with pytest.raises(InvalidRuntime, match=text):
            async with connect(runtime_endpoint=f"unix://{socket}", timeout=T):
                pass


async def test_connecting_needs_an_image_service(server, socket):
    text = f'^validate CRI v1 image API for endpoint "unix://{socket}": rpc error: code = Unimplemented desc = '
    async with server.serving(socket, [calls.RUNTIME_SERVICE]):
        with pytest.raises(InvalidRuntime, match=text):
            async with connect(runtime_endpoint=f"unix://{socket}", timeout=T):
                pass


async def test_a_runtime_that_is_not_containerd_has_no_such_events(client):
    async with aclosing(ContainerdEvents(connection=client.runtime).subscribe()) as stream:
        with pytest.raises(Unimplemented):
            await anext(stream)


async def test_a_client_comes_back_with_its_runtime(server, socket):
    async with open_connection(f"unix://{socket}") as connection:
        client = CriClient(runtime=connection, images=connection, timeout=T)
        with pytest.raises(Unavailable):
            await client.version(pb.VersionRequest())
        for _ in range(2):
            async with server.serving(socket), asyncio.timeout(10):
                while True:
                    try:
                        await client.version(pb.VersionRequest())
                        break
                    except Unavailable:
                        await asyncio.sleep(0.02)
            with pytest.raises(Unavailable):
                await client.version(pb.VersionRequest())


async def test_closing_the_connection_is_no_cancellation_of_the_callers(server, socket):
    entered, never = asyncio.Event(), asyncio.Event()

    async def silent():
        entered.set()
        await never.wait()

    server.answers["ListContainers"] = silent
    async with (
        server.serving(socket),
        asyncio.TaskGroup() as group,
        connect(runtime_endpoint=f"unix://{socket}", timeout=T) as client,
    ):
        task = group.create_task(failure_of(client.list_containers(pb.ListContainersRequest())))
        await entered.wait()
    assert isinstance(task.result(), Unavailable)


async def test_a_cancelled_caller_is_cancelled(client, server):
    entered, never = asyncio.Event(), asyncio.Event()

    async def silent():
        entered.set()
        await never.wait()

    server.answers["ListContainers"] = silent
    async with asyncio.TaskGroup() as group:
        task = group.create_task(client.list_containers(pb.ListContainersRequest()))
        await entered.wait()
        task.cancel()
    assert task.cancelled()


async def failure_of(call):
    try:
        await call
    except CriError as error:
        return error
    return None


@pytest.fixture
async def garbage(socket):
    """A client of a runtime whose answers are no messages at all."""

    async def answer(_request, _context):
        return b"a"

    async def stream(_request, _context):
        yield b"a"

    calls_ = {
        name: grpc.unary_stream_rpc_method_handler(stream)
        if method.streams_responses
        else grpc.unary_unary_rpc_method_handler(answer)
        for name, method in METHODS.items()
    }
    server = aio.server()
    for service in (calls.RUNTIME_SERVICE, calls.IMAGE_SERVICE):
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, calls_),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    async with open_connection(f"unix://{socket}") as connection:
        yield CriClient(runtime=connection, images=connection, timeout=T)
    await server.stop(None)


@pytest.mark.parametrize("name", UNARY)
async def test_an_answer_that_is_no_message_is_an_error(garbage, name):
    with pytest.raises(CriError, match="code = Internal desc = grpc: failed to unmarshal the received message"):
        await getattr(garbage, snake(name))(METHODS[name].request())


async def test_an_event_that_is_no_message_is_an_error(garbage):
    async with aclosing(CriEvents(runtime=garbage).subscribe()) as events:
        with pytest.raises(CriError, match="failed to unmarshal"):
            await anext(events)


async def test_calls_are_logged_without_what_they_carry(client, server, caplog):
    caplog.set_level(REQUESTS, logger="klet.cri.connection")
    login = pb.AuthConfig(username="me", password="hunter2")
    await client.pull_image(pb.PullImageRequest(image=pb.ImageSpec(image="i"), auth=login))
    server.answers["StartContainer"] = (grpc.StatusCode.NOT_FOUND, "no such container")
    with pytest.raises(CriNotFound):
        await client.start_container(pb.StartContainerRequest(container_id="c"))
    lines = [(each.message, each.method, each.status) for each in caplog.records]
    assert lines == [
        ("CRI response", "/runtime.v1.ImageService/PullImage", "OK"),
        ("CRI response", "/runtime.v1.RuntimeService/StartContainer", "NotFound"),
    ]
    assert all(each.milliseconds >= 0 for each in caplog.records)
    assert "hunter2" not in "".join(str(vars(each)) for each in caplog.records)


async def test_calls_are_logged_as_they_begin_and_when_they_are_called_off(client, server, caplog):
    caplog.set_level(REQUEST_STARTS, logger="klet.cri.connection")
    begun = asyncio.Event()

    async def hang():
        begun.set()
        await asyncio.Event().wait()

    server.answers["Status"] = hang
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(client.status(pb.StatusRequest()))
        await begun.wait()
        assert [each.message for each in caplog.records] == ["CRI request"]
        task.cancel()
    assert [(each.message, each.status) for each in caplog.records[1:]] == [("CRI response", "Canceled")]
