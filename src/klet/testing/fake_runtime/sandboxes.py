"""The calls about pod sandboxes."""

from collections.abc import Generator

from klet.cri.errors import Code
from klet.host.containerd_config import PAUSE_IMAGE
from klet.testing.fake_runtime import views
from klet.testing.fake_runtime.calls import CallWait, HandlerTable, RpcFailure, Steps
from klet.testing.fake_runtime.lookup import find, select
from klet.testing.fake_runtime.processes import Processes
from klet.testing.fake_runtime.world import FakeContainer, Sandbox, World
from klet.wire import containerd_events_pb2 as containerd
from klet.wire import cri_v1_pb2 as pb


class SandboxCalls:
    """Run, stop, remove, status, list."""

    def __init__(self, world: World, processes: Processes) -> None:
        self._world = world
        self._processes = processes

    def handlers(self) -> HandlerTable:
        return {
            "RunPodSandbox": self._run,
            "StopPodSandbox": self._stop,
            "RemovePodSandbox": self._remove,
            "PodSandboxStatus": self._status,
            "ListPodSandbox": self._list,
            "UpdatePodSandboxResources": self._update,
        }

    def _run(self, request: pb.RunPodSandboxRequest) -> pb.RunPodSandboxResponse:
        config = request.config
        if not config.HasField("metadata"):
            raise RpcFailure(Code.UNKNOWN, "sandbox config must include metadata")
        id_, metadata = self._world.new_id(), config.metadata
        name = f"{metadata.name}_{metadata.namespace}_{metadata.uid}_{metadata.attempt}"
        self._world.reserve("sandbox", name, id_)
        if request.runtime_handler not in self._world.features.runtime_handlers:
            self._world.release("sandbox", name)
            raise RpcFailure(
                Code.UNKNOWN,
                f'failed to get sandbox runtime: no runtime for "{request.runtime_handler}" is configured',
            )
        on_host = config.linux.security_context.namespace_options.network == pb.NODE
        sandbox = Sandbox(
            id=id_,
            name=name,
            config=config,
            runtime_handler=request.runtime_handler,
            created_at=self._world.timeline.stamp(),
            pid=self._world.new_pid(),
            ips=() if on_host else self._world.new_ips(),
        )
        self._world.sandboxes[id_] = sandbox
        self._world.emit("/containers/create", id_, containerd.ContainerCreate(id=id_, image=PAUSE_IMAGE))
        update = containerd.ContainerUpdate(id=id_, image=PAUSE_IMAGE, labels=config.labels, snapshot_key=id_)
        update.labels["io.cri-containerd.kind"] = "sandbox"
        self._world.emit("/containers/update", id_, update)
        self._processes.start_pause(sandbox)
        return pb.RunPodSandboxResponse(pod_sandbox_id=id_)

    def _stop(self, request: pb.StopPodSandboxRequest) -> Steps:
        id_ = request.pod_sandbox_id
        sandbox = find(self._world.sandboxes, id_, f'an error occurred when try to find sandbox "{id_}"')
        yield from self._stop_sandbox(sandbox)
        return pb.StopPodSandboxResponse()

    def _remove(self, request: pb.RemovePodSandboxRequest) -> Steps:
        id_ = request.pod_sandbox_id
        try:
            sandbox = find(self._world.sandboxes, id_, f'an error occurred when try to find sandbox "{id_}"')
        except RpcFailure as failure:
            if failure.code is not Code.NOT_FOUND:
                raise
            return pb.RemovePodSandboxResponse()
        yield from self._stop_sandbox(sandbox)
        for container in list(sandbox.containers.values()):
            self.forget_container(container)
        if self._world.sandboxes.pop(sandbox.id, None) is not None:
            self._world.release("sandbox", sandbox.name)
            self._world.emit("/containers/delete", sandbox.id, containerd.ContainerDelete(id=sandbox.id))
        return pb.RemovePodSandboxResponse()

    def _status(self, request: pb.PodSandboxStatusRequest) -> pb.PodSandboxStatusResponse:
        what = "an error occurred when try to find sandbox"
        sandbox = find(self._world.sandboxes, request.pod_sandbox_id, what)
        answer = pb.PodSandboxStatusResponse(status=views.sandbox_status(sandbox))
        if request.verbose:
            answer.info["info"] = views.sandbox_info(sandbox)
        return answer

    def _list(self, request: pb.ListPodSandboxRequest) -> pb.ListPodSandboxResponse:
        wanted = request.filter
        id_ = wanted.id
        state = wanted.state.state if wanted.HasField("state") else None
        items = [
            views.sandbox_item(sandbox)
            for sandbox in select(self._world.sandboxes.values(), wanted.label_selector)
            if sandbox.id.startswith(id_) and state in (None, sandbox.state)
        ]
        return pb.ListPodSandboxResponse(items=items)

    def _update(self, request: pb.UpdatePodSandboxResourcesRequest) -> pb.UpdatePodSandboxResourcesResponse:
        sandbox = find(self._world.sandboxes, request.pod_sandbox_id, "failed to find sandbox")
        config = pb.PodSandboxConfig()
        config.CopyFrom(sandbox.config)
        config.linux.overhead.CopyFrom(request.overhead)
        config.linux.resources.CopyFrom(request.resources)
        sandbox.config = config
        return pb.UpdatePodSandboxResourcesResponse()

    def forget_container(self, container: FakeContainer) -> None:
        """Remove a container that no longer runs; its name is free again."""
        if self._world.containers.pop(container.id, None) is None:
            return
        del container.sandbox.containers[container.id]
        self._world.release("container", container.name)
        self._world.emit("/containers/delete", container.id, containerd.ContainerDelete(id=container.id))

    def _stop_sandbox(self, sandbox: Sandbox) -> Generator[CallWait, None, None]:
        """Stop the sandbox and kill its containers without grace: the kubelet stops them before, if it wants grace."""
        for container in list(sandbox.containers.values()):
            self._processes.kill(container)
            while container.is_running:
                yield CallWait(on=container.exited)
        self._processes.end_pause(sandbox)
        if sandbox.has_network:
            sandbox.has_network = False
            self._world.free_ips(sandbox.ips)
