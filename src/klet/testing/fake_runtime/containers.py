"""The calls about containers' lives: create, start, stop, remove, status, list, update, logs."""

from datetime import timedelta
from pathlib import PurePosixPath

from klet.cri.errors import Code
from klet.testing.fake_runtime import views
from klet.testing.fake_runtime.calls import CallWait, HandlerTable, RpcFailure, Steps
from klet.testing.fake_runtime.lives import LifeChooser
from klet.testing.fake_runtime.lookup import find, select
from klet.testing.fake_runtime.processes import Processes
from klet.testing.fake_runtime.sandboxes import SandboxCalls
from klet.testing.fake_runtime.world import FakeContainer, World
from klet.wire import containerd_events_pb2 as containerd
from klet.wire import cri_v1_pb2 as pb


class ContainerCalls:
    """Containers of sandboxes; `lives` says what each of them will do."""

    def __init__(self, world: World, processes: Processes, sandboxes: SandboxCalls, lives: LifeChooser) -> None:
        self._world = world
        self._processes = processes
        self._sandboxes = sandboxes
        self._lives = lives

    def handlers(self) -> HandlerTable:
        return {
            "CreateContainer": self._create,
            "StartContainer": self._start,
            "StopContainer": self._stop,
            "RemoveContainer": self._remove,
            "ListContainers": self._list,
            "ContainerStatus": self._status,
            "UpdateContainerResources": self._update,
            "ReopenContainerLog": self._reopen,
            "CheckpointContainer": self._checkpoint,
        }

    def _create(self, request: pb.CreateContainerRequest) -> pb.CreateContainerResponse:
        sandbox = find(
            self._world.sandboxes, request.pod_sandbox_id, f'failed to find sandbox id "{request.pod_sandbox_id}"'
        )
        if not sandbox.is_ready:
            raise RpcFailure(
                Code.NOT_FOUND,
                f"failed to get sandbox container task: no running task found: task {sandbox.id} not found: not found",
            )
        config = request.config
        if not config.HasField("metadata"):
            raise RpcFailure(Code.UNKNOWN, "container config must include metadata")
        id_, pod = self._world.new_id(), request.sandbox_config.metadata
        name = "_".join((config.metadata.name, pod.name, pod.namespace, pod.uid, str(config.metadata.attempt)))
        self._world.reserve("container", name, id_)
        try:
            image = self._world.images.find(config.image.image)
            if image is None:
                raise RpcFailure(Code.NOT_FOUND, f'failed to resolve image "{config.image.image}": not found')
            life = self._lives(config)
            if life.create_failure is not None:
                raise RpcFailure(life.create_failure.code, life.create_failure.message)
        except RpcFailure:
            self._world.release("container", name)
            raise
        container = FakeContainer(
            id=id_,
            name=name,
            sandbox=sandbox,
            config=config,
            image_id=image.image.image_id,
            log_path=_log_path(request.sandbox_config.log_directory, config.log_path),
            life=life,
            created_at=self._world.timeline.stamp(),
            resources=_created_resources(config.linux.resources),
        )
        self._world.containers[id_] = sandbox.containers[id_] = container
        self._world.emit("/containers/create", id_, containerd.ContainerCreate(id=id_, image=config.image.image))
        return pb.CreateContainerResponse(container_id=id_)

    def _start(self, request: pb.StartContainerRequest) -> pb.StartContainerResponse:
        container = self._find(request.container_id)
        if container.state != pb.CONTAINER_CREATED:
            state = pb.ContainerState.Name(container.state)
            raise RpcFailure(
                Code.UNKNOWN,
                f'failed to set starting state for container "{container.id}": container is in {state} state',
            )
        if not container.sandbox.is_ready:
            failure = RpcFailure(Code.UNKNOWN, f'sandbox container "{container.sandbox.id}" is not running')
            raise self._processes.refuse(container, failure)
        if container.life.start_failure is not None:
            raise self._processes.refuse(container, container.life.start_failure)
        self._processes.start(container)
        return pb.StartContainerResponse()

    def _stop(self, request: pb.StopContainerRequest) -> Steps:
        container = self._find(request.container_id)
        if request.timeout > 0 and container.is_running:
            deadline = self._world.timeline.now + timedelta(seconds=request.timeout)
            self._processes.terminate(container)
            while container.is_alive and self._world.timeline.now < deadline:
                yield CallWait(until=deadline, on=container.ended)
        if container.is_running:
            self._processes.kill(container)
        while container.is_running:
            yield CallWait(on=container.exited)
        return pb.StopContainerResponse()

    def _remove(self, request: pb.RemoveContainerRequest) -> Steps:
        try:
            container = self._find(request.container_id)
        except RpcFailure as failure:
            if failure.code is not Code.NOT_FOUND:
                raise
            return pb.RemoveContainerResponse()
        self._processes.kill(container)
        while container.is_running:
            yield CallWait(on=container.exited)
        self._sandboxes.forget_container(container)
        return pb.RemoveContainerResponse()

    def _list(self, request: pb.ListContainersRequest) -> pb.ListContainersResponse:
        wanted = request.filter
        id_, sandbox_id = wanted.id, wanted.pod_sandbox_id
        state = wanted.state.state if wanted.HasField("state") else None
        containers = [
            views.container_item(container)
            for container in select(self._world.containers.values(), wanted.label_selector)
            if container.id.startswith(id_)
            and container.sandbox.id.startswith(sandbox_id)
            and state in (None, container.state)
        ]
        return pb.ListContainersResponse(containers=containers)

    def _status(self, request: pb.ContainerStatusRequest) -> pb.ContainerStatusResponse:
        container = self._find(request.container_id)
        answer = pb.ContainerStatusResponse(status=views.container_status(container, self._world.images))
        if request.verbose:
            answer.info["info"] = views.container_info(container)
        return answer

    def _update(self, request: pb.UpdateContainerResourcesRequest) -> pb.UpdateContainerResourcesResponse:
        container = find(self._world.containers, request.container_id, "failed to find container")
        # Only what is set changes.
        container.resources.MergeFrom(request.linux)
        container.status = None
        body = containerd.ContainerUpdate(
            id=container.id,
            image=container.config.image.image,
            labels=container.config.labels,
            snapshot_key=container.id,
        )
        body.labels["io.cri-containerd.kind"] = "container"
        self._world.emit("/containers/update", container.id, body)
        return pb.UpdateContainerResourcesResponse()

    def _reopen(self, request: pb.ReopenContainerLogRequest) -> pb.ReopenContainerLogResponse:
        container = self._find(request.container_id)
        if not container.is_running:
            raise RpcFailure(Code.UNKNOWN, "container is not running")
        if container.log_path:
            self._world.sink.open(container.log_path)
        return pb.ReopenContainerLogResponse()

    def _checkpoint(self, request: pb.CheckpointContainerRequest) -> pb.CheckpointContainerResponse:
        container = self._find(request.container_id)
        if not container.is_running:
            raise RpcFailure(Code.UNKNOWN, f'container "{container.id}" is in CONTAINER_EXITED state, expected running')
        self._world.sink.write_file(request.location, b"checkpoint of " + container.id.encode())
        return pb.CheckpointContainerResponse()

    def _find(self, id_: str) -> FakeContainer:
        return find(self._world.containers, id_, f'an error occurred when try to find container "{id_}"')


def _log_path(directory: str, path: str) -> str:
    return str(PurePosixPath(directory) / path) if path else ""


def _created_resources(asked: pb.LinuxContainerResources) -> pb.LinuxContainerResources:
    """Return what the runtime makes of the request: a memory limit also limits swap."""
    resources = pb.LinuxContainerResources()
    resources.CopyFrom(asked)
    if resources.memory_limit_in_bytes and not resources.memory_swap_limit_in_bytes:
        resources.memory_swap_limit_in_bytes = resources.memory_limit_in_bytes
    return resources
