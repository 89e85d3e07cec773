"""`klet image pull` and `rm` with a runtime over gRPC, and `load` into one that is no containerd."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from grpc import aio

from klet.aio.clock import SystemClock
from klet.api.klet_v1_images import ImageUsage, NodeImage, NodeImageListing
from klet.cli.client import AgentClient, AgentUnavailable, RuntimeSockets
from klet.cli.image_load import CannotLoad, load_archive
from klet.cli.image_pull import CannotPull, pull_images, remove_images
from klet.cli.node.node import find_node
from klet.cli.node_runtime import NodeRuntime, find_runtime
from klet.cri.calls import IMAGE_SERVICE, RUNTIME_SERVICE
from klet.cri.client import connect
from klet.errors import KletError
from klet.testing.clock import FastClock, ManualClock
from klet.testing.cri_server import serve_cri
from klet.testing.fake_runtime import FakeImage, FakeRuntime, Script, registry_of
from klet.wire import cri_v1_pb2 as cri
from klet.wire.methods import service_handler

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PLAIN = FakeImage("registry.test/plain:1", size=3 << 20)
PRIVATE = FakeImage("registry.test/private:1", login=("user", "pass"))
SLOW = FakeImage("registry.test/slow:1", pull_time=timedelta(seconds=2))


class Lines:
    """Remembers what a command shows."""

    def __init__(self):
        self.said, self.waits, self.notes = [], [], []
        self.shown = asyncio.Event()

    def step(self, title):
        self.waits.append(title)
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def note(self, text):
        self.notes.append(text)

    def show(self, text):
        self.said.append(text)

    def warn(self, text):
        self.said.append(f"warning: {text}")

    def error(self, text):
        self.said.append(f"error: {text}")

    def waiting(self, text):
        self.waits.append(text)
        self.shown.set()


class Agent:
    """An agent with these images, or none at all."""

    def __init__(self, *images, is_there=True):
        self._images = images
        self._is_there = is_there

    def images(self):
        if not self._is_there:
            raise AgentUnavailable("no agent answers")
        return NodeImageListing(now=NOW, images=self._images)


@pytest.fixture
async def runtime():
    return FakeRuntime(start=NOW, script=Script(registry=registry_of(PLAIN, PRIVATE, SLOW)))


@pytest.fixture
async def node(runtime, tmp_path):
    async with serve_cri(runtime, clock=FastClock(), socket=tmp_path / "cri.sock") as endpoint:
        yield NodeRuntime(endpoint=endpoint, logins=tmp_path)


async def pull(node, *names):
    lines = Lines()
    await pull_images(names, node, progress=lines, clock=SystemClock())
    return lines


async def test_pull(node):
    assert (await pull(node, "registry.test/plain:1")).notes == ["3.0 MiB"]


async def test_a_pull_of_a_runtime_without_a_content_store_shows_its_time(runtime, tmp_path):
    clock, lines = ManualClock(start=NOW), Lines()
    async with serve_cri(runtime, clock=clock, socket=tmp_path / "slow.sock") as endpoint:
        node = NodeRuntime(endpoint=endpoint, logins=tmp_path)
        async with asyncio.TaskGroup() as group:
            names = ["registry.test/slow:1"]
            pull = group.create_task(pull_images(names, node, progress=lines, clock=SystemClock()))
            await lines.shown.wait()
            # The runtime may not have the request yet: its time begins when it does.
            while not pull.done():
                clock.advance(SLOW.pull_time)
                await asyncio.sleep(0.01)
    assert lines.waits[1].startswith("Pull registry.test/slow:1: for ")
    assert lines.notes == ["4.0 MiB"]


async def test_a_pull_uses_the_logins_of_the_node(node):
    with pytest.raises(CannotPull, match=r"authorization failed.*; the node has no login for it"):
        await pull(node, "registry.test/private:1")
    (node.logins / "config.json").write_text("{")
    lines = Lines()
    with pytest.raises(CannotPull):
        await pull_images(["registry.test/private:1"], node, progress=lines, clock=SystemClock())
    assert lines.said[0].startswith(f"warning: the registry logins in {node.logins}/config.json cannot be read: ")
    login = '{"auths": {"registry.test": {"username": "user", "password": "pass"}}}'
    (node.logins / "config.json").write_text(login)
    assert (await pull(node, "registry.test/private:1")).notes == ["4.0 MiB"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        pytest.param("registry.test/none:1", "registry.test/none:1: .*not found", id="an image that there is not"),
        pytest.param("Registry.test/UPPER", "must be lowercase", id="a name that is none"),
    ],
)
async def test_pulls_that_fail(node, name, says):
    with pytest.raises(CannotPull, match=says):
        await pull(node, name)


async def remove(node, agent, *names, is_forced=False):
    lines = Lines()
    code = await remove_images(names, node, agent, is_forced=is_forced, progress=lines)
    return code, lines.said


USER = ImageUsage(how="container", namespace="default", pod="web", container="main")


def known(*users):
    return NodeImage(id=PLAIN.image_id, first_detected=NOW, users=users)


async def test_an_image_that_is_used_is_kept_and_the_others_go(node):
    await pull(node, "registry.test/plain:1", "registry.test/slow:1")
    code, said = await remove(node, Agent(known(USER)), "registry.test/plain:1", "registry.test/slow:1", "none:1")
    assert code == 1
    assert said[0].startswith("error: registry.test/plain:1 is used by default/web/main; --force")
    assert said[1].startswith("Removed registry.test/slow:1, registry.test/slow@sha256:")
    assert said[2].startswith("error: none:1: no such image")
    assert (await remove(node, Agent(known(USER)), "registry.test/plain:1", is_forced=True))[0] == 0


async def test_an_image_that_nothing_uses_goes_also_without_an_agent(node):
    await pull(node, "registry.test/plain:1")
    assert (await remove(node, Agent(is_there=False), "registry.test/plain:1"))[0] == 0
    assert (await remove(node, Agent(is_there=False), "registry.test/plain:1"))[0] == 1


async def test_without_an_agent_the_image_of_sandboxes_is_kept(runtime, node):
    runtime.load_image(FakeImage("registry.k8s.io/pause:3.6"))
    code, [said] = await remove(node, Agent(is_there=False), "registry.k8s.io/pause:3.6")
    assert (code, "is used by sandboxes; --force" in said) == (1, True)


@pytest.mark.parametrize(
    ("mounts", "says"),
    [
        pytest.param((), "registry.test/plain:1 is used by the container main;", id="its own image"),
        pytest.param(("registry.test/slow:1",), "registry.test/slow:1 is used by a volume of", id="a volume"),
    ],
)
async def test_without_an_agent_the_images_of_containers_are_kept(runtime, node, mounts, says):
    await pull(node, "registry.test/plain:1", "registry.test/slow:1")
    sandbox = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(name="web", namespace="default", uid="1"))
    config = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name="main"),
        image=cri.ImageSpec(image=PLAIN.image_id),
        mounts=[cri.Mount(container_path="/data", image=cri.ImageSpec(image=name)) for name in mounts],
    )
    async with connect(runtime_endpoint=node.endpoint, image_endpoint="", timeout=timedelta(seconds=10)) as client:
        pod = await client.run_pod_sandbox(cri.RunPodSandboxRequest(config=sandbox))
        await client.create_container(
            cri.CreateContainerRequest(pod_sandbox_id=pod.pod_sandbox_id, config=config, sandbox_config=sandbox)
        )
    code, [said] = await remove(node, Agent(is_there=False), mounts[0] if mounts else "registry.test/plain:1")
    assert code == 1
    assert says in said


async def test_a_pinned_image_is_kept(runtime, node):
    runtime.load_image(FakeImage("pinned:1", pinned=True))
    code, [said] = await remove(node, Agent(is_there=False), "pinned:1")
    assert (code, "is pinned by the runtime" in said) == (1, True)


async def version_of_other(_request, _context):
    return cri.VersionResponse(
        version="0.1.0", runtime_name="cri-o", runtime_version="1.35.0", runtime_api_version="v1"
    )


async def no_disk(_request, _context):
    return cri.ImageFsInfoResponse()


@asynccontextmanager
async def serving(tmp_path, runtime_calls, image_calls):
    """Serve another runtime than the fake one: what a test says of each call."""
    server = aio.server()
    handlers = [(RUNTIME_SERVICE, runtime_calls), (IMAGE_SERVICE, image_calls)]
    server.add_generic_rpc_handlers(tuple(service_handler(service, calls) for service, calls in handlers))
    server.add_insecure_port(f"unix:{tmp_path / 'cri.sock'}")
    await server.start()
    try:
        yield NodeRuntime(endpoint=f"unix://{tmp_path / 'cri.sock'}", logins=tmp_path)
    finally:
        await server.stop(None)


DIGEST = "registry.test/plain@sha256:" + "0" * 64


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param({"image_ref": "sha256:1"}, id="its id"),
        pytest.param({"image_id": "sha256:1", "image_ref": "other"}, id="its id in a field of its own"),
        pytest.param({"image_ref": DIGEST}, id="its digest"),
        pytest.param({"image": cri.ImageSpec(image="registry.test/plain:1")}, id="its tag"),
    ],
)
async def test_without_an_agent_the_containers_show_which_image_is_used(tmp_path, shown):
    async def list_containers(_request, _context):
        user = cri.Container(metadata=cri.ContainerMetadata(name="main"), **shown)
        return cri.ListContainersResponse(containers=[user])

    async def image_status(_request, _context):
        image = cri.Image(id="sha256:1", size=1, repo_tags=["registry.test/plain:1"], repo_digests=[DIGEST])
        return cri.ImageStatusResponse(image=image)

    async def remove_image(_request, _context):
        return cri.RemoveImageResponse()

    async def status(_request, _context):
        conditions = [cri.RuntimeCondition(type=each, status=True) for each in ("RuntimeReady", "NetworkReady")]
        return cri.StatusResponse(status=cri.RuntimeStatus(conditions=conditions))

    async with serving(
        tmp_path,
        {"Version": version_of_other, "Status": status, "ListContainers": list_containers},
        {"ImageFsInfo": no_disk, "ImageStatus": image_status, "RemoveImage": remove_image},
    ) as node:
        code, [said] = await remove(node, Agent(is_there=False), "registry.test/plain:1")
    assert (code, said) == (
        1,
        "error: registry.test/plain:1 is used by the container main; --force removes it nevertheless",
    )


async def test_archives_are_for_containerd_alone(tmp_path):
    async with serving(tmp_path, {"Version": version_of_other}, {"ImageFsInfo": no_disk}) as other:
        with pytest.raises(CannotLoad, match="is cri-o: archives can be loaded into containerd only"):
            # It runs loops of its own.
            await asyncio.to_thread(
                load_archive, str(tmp_path / "app.tar"), other, base_name="", progress=Lines(), clock=SystemClock()
            )


def client(tmp_path):
    return AgentClient(socket_path=tmp_path / "klet.sock", advise=lambda: None)


class Configured:
    """An agent that says where its runtime is."""

    def runtime_sockets(self):
        return RuntimeSockets(container_runtime_endpoint="unix:///run/x.sock", image_service_endpoint="/run/images")


async def test_where_the_runtime_of_a_node_is(node, tmp_path):
    given = find_runtime(find_node(tmp_path), client(tmp_path), endpoint=node.endpoint)
    assert (given.endpoint, given.logins) == (node.endpoint, tmp_path)
    with pytest.raises(KletError, match="/none is not there: give --runtime-endpoint that of a runtime"):
        find_runtime(find_node(tmp_path), client(tmp_path), endpoint="/none")
    with pytest.raises(KletError, match=r"tcp://1\.2\.3\.4:5: it has to be a Unix socket"):
        find_runtime(find_node(tmp_path), client(tmp_path), endpoint="tcp://1.2.3.4:5")
    with pytest.raises(KletError, match="name its socket with --runtime-endpoint"):
        find_runtime(find_node(tmp_path), client(tmp_path), endpoint="")
    with pytest.raises(KletError, match="/run/images is not there"):
        find_runtime(find_node(tmp_path), Configured(), endpoint="")
    (tmp_path / "node.json").write_text("{}")
    with pytest.raises(KletError, match=r"containerd\.sock is not there: `klet up` starts"):
        find_runtime(find_node(tmp_path), client(tmp_path), endpoint="")
