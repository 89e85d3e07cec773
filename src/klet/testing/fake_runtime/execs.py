"""The calls that reach into containers: exec, attach, port forwarding."""

from datetime import timedelta

from klet.cri.errors import Code
from klet.testing.fake_runtime.calls import CallWait, HandlerTable, RpcFailure, Steps
from klet.testing.fake_runtime.lives import ExecChooser, ExecResult
from klet.testing.fake_runtime.lookup import find
from klet.testing.fake_runtime.processes import KILLED, Processes
from klet.testing.fake_runtime.world import FakeContainer, World
from klet.wire import cri_v1_pb2 as pb


class ExecCalls:
    """`execs` says what each command does."""

    def __init__(self, world: World, processes: Processes, execs: ExecChooser) -> None:
        self._world = world
        self._processes = processes
        self._execs = execs

    def handlers(self) -> HandlerTable:
        return {
            "ExecSync": self._exec_sync,
            "Exec": self._exec,
            "Attach": self._attach,
            "PortForward": self._port_forward,
        }

    def _exec_sync(self, request: pb.ExecSyncRequest) -> Steps:
        what = "failed to exec in container: "
        container = self._running(request.container_id, what)
        id_, pid = self._processes.run_inside(container)
        result = self._result(container, request)
        if result.failure is not None:
            message = f'{what}failed to start exec "{id_}": {result.failure.message}'
            raise RpcFailure(result.failure.code, message)
        self._processes.started_inside(container, id_, pid)
        now = self._world.timeline.now
        end = now + result.takes
        deadline = now + timedelta(seconds=request.timeout) if request.timeout > 0 else None
        stop = end if deadline is None else min(end, deadline)
        while container.is_alive and self._world.timeline.now < stop:
            yield CallWait(until=stop, on=container.ended)
        if self._world.timeline.now >= end:
            self._processes.ended_inside(container, id_, pid, result.exit_code)
            return pb.ExecSyncResponse(stdout=result.stdout, stderr=result.stderr, exit_code=result.exit_code)
        self._processes.ended_inside(container, id_, pid, KILLED)
        if not container.is_alive:
            return pb.ExecSyncResponse(stdout=result.stdout, stderr=result.stderr, exit_code=KILLED)
        limit = _go_seconds(request.timeout)
        raise RpcFailure(Code.DEADLINE_EXCEEDED, f"{what}timeout {limit} exceeded: context deadline exceeded")

    def _exec(self, request: pb.ExecRequest) -> pb.ExecResponse:
        self._running(request.container_id)
        if not (request.stdin or request.stdout or request.stderr):
            raise RpcFailure(Code.INVALID_ARGUMENT, "one of stdin, stdout, or stderr must be set")
        if request.tty and request.stderr:
            raise RpcFailure(Code.INVALID_ARGUMENT, "tty and stderr cannot both be true")
        return pb.ExecResponse(url=self._url("exec"))

    def _attach(self, request: pb.AttachRequest) -> pb.AttachResponse:
        container = find(self._world.containers, request.container_id, "failed to find container in store")
        self._running(container.id)
        if not (request.stdin or request.stdout or request.stderr):
            raise RpcFailure(Code.INVALID_ARGUMENT, "one of stdin, stdout, and stderr must be set")
        return pb.AttachResponse(url=self._url("attach"))

    def _port_forward(self, request: pb.PortForwardRequest) -> pb.PortForwardResponse:
        what = f'failed to find sandbox "{request.pod_sandbox_id}"'
        sandbox = find(self._world.sandboxes, request.pod_sandbox_id, what)
        if not sandbox.is_ready:
            raise RpcFailure(Code.UNKNOWN, "sandbox container is not running")
        return pb.PortForwardResponse(url=self._url("portforward"))

    def _running(self, id_: str, what: str = "") -> FakeContainer:
        container = find(self._world.containers, id_, f'{what}failed to find container "{id_}" in store')
        if not container.is_running:
            state = pb.ContainerState.Name(container.state)
            raise RpcFailure(Code.UNKNOWN, f"{what}container is in {state} state")
        return container

    def _result(self, container: FakeContainer, request: pb.ExecSyncRequest) -> ExecResult:
        if not request.cmd:
            failure = RpcFailure(Code.UNKNOWN, "OCI runtime exec failed: exec failed: args must not be empty: unknown")
            return ExecResult(failure=failure)
        return self._execs(container.config, tuple(request.cmd))

    def _url(self, kind: str) -> str:
        return f"{self._world.features.streaming_url}/{kind}/{self._world.new_id()[:8]}"


def _go_seconds(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{minutes}m{seconds}s" if minutes or hours else f"{seconds}s"
    return f"{hours}h{text}" if hours else text
