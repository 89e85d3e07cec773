"""The fake runtime: one synchronous state machine that answers CRI calls as containerd 1.6 does.

It never waits and never reads a clock: each call and each advance brings the time along. Skins put it behind gRPC
(klet.testing.cri_server) or behind klet's own port (klet.testing.in_process).
"""

import random
from collections import deque
from collections.abc import Callable, Generator
from datetime import datetime, timedelta
from functools import partial
from typing import Any, assert_never

from google.protobuf.message import Message

from klet.cri.errors import Code
from klet.testing.fake_runtime.calls import AnswerRecord, Call, CallRecord, CallSignal, CallWait, RpcFailure, Steps
from klet.testing.fake_runtime.containers import ContainerCalls
from klet.testing.fake_runtime.events import FakeEvent
from klet.testing.fake_runtime.execs import ExecCalls
from klet.testing.fake_runtime.faults import DelayCall, Fail, Fault, FaultBook, HalfDone, Hang, Twice
from klet.testing.fake_runtime.image_calls import ImageCalls
from klet.testing.fake_runtime.images import FakeImage, StoredImage
from klet.testing.fake_runtime.lives import OutputLine, Stream
from klet.testing.fake_runtime.logs import LogSink, MemorySink
from klet.testing.fake_runtime.node_calls import NodeCalls
from klet.testing.fake_runtime.processes import KILLED, Processes
from klet.testing.fake_runtime.sandboxes import SandboxCalls
from klet.testing.fake_runtime.script import Script
from klet.testing.fake_runtime.views import container_status, sandbox_status
from klet.testing.fake_runtime.world import FakeContainer, Features, Sandbox, World
from klet.wire import cri_v1_pb2 as pb

_NO_SCRIPT = Script()
_CONTAINERD_1_6 = Features()


class FakeRuntime:
    """Sandboxes, containers, images, events and faults behind `call` and `advance`."""

    def __init__(
        self,
        *,
        start: datetime,
        seed: int = 0,
        script: Script = _NO_SCRIPT,
        features: Features = _CONTAINERD_1_6,
        sink: LogSink | None = None,
        images: tuple[FakeImage, ...] = (),
        remember: int = 20_000,
    ) -> None:
        self.faults = FaultBook()
        self.history: deque[CallRecord | AnswerRecord | FakeEvent] = deque(maxlen=remember)
        self.disconnected = CallSignal()
        self.left_calls: set[Call] = set()
        """Those whose caller has given up."""
        self._calls: dict[Call, None] = {}
        """Those that have not been answered, in their order."""
        self._random = random.Random(seed)
        self._script = script
        self._world = World(
            start=start, rng=self._random, sink=sink or MemorySink(), features=features, faults=self.faults
        )
        self._timeline = self._world.timeline
        self._processes = Processes(self._world)
        sandboxes = SandboxCalls(self._world, self._processes)
        self._image_calls = ImageCalls(self._world, script.registry)
        self._handlers = {
            **sandboxes.handlers(),
            **ContainerCalls(self._world, self._processes, sandboxes, script.lives).handlers(),
            **ExecCalls(self._world, self._processes, script.execs).handlers(),
            **self._image_calls.handlers(),
            **NodeCalls(self._world).handlers(),
        }
        for rpc in _missing(features):
            self._handlers.pop(rpc, None)
        self._world.listen(self.history.append)
        for image in images:
            self._image_calls.load(image)

    @property
    def now(self) -> datetime:
        return self._timeline.now

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The calls that were begun, oldest first; long runs forget the first of them."""
        return tuple(record for record in self.history if isinstance(record, CallRecord))

    @property
    def events(self) -> tuple[FakeEvent, ...]:
        """The events that were delivered, oldest first; long runs forget the first of them."""
        return tuple(record for record in self.history if isinstance(record, FakeEvent))

    def trace(self) -> tuple[str, ...]:
        """Return calls, answers and events as text, in order: two runs with the same seed have the same trace."""
        return tuple(str(record) for record in self.history)

    @property
    def features(self) -> Features:
        return self._world.features

    def call(self, rpc: str, request: Message, *, now: datetime) -> Call:
        """Begin a call; it is done when it returns, or after some later `advance` or call."""
        timeline = self._timeline
        timeline.advance(now)
        mine = type(request)()
        mine.CopyFrom(request)
        self.history.append(CallRecord(timeline.now, rpc, mine))
        call = Call(rpc, mine)
        self._calls[call] = None
        if delay := self._script.latency(rpc, self._random):
            timeline.at(timeline.now + delay, partial(self._begin, call))
        else:
            self._begin(call)
        return call

    def give_up(self, call: Call) -> None:
        """End a call whose caller no longer waits. What was done stays done."""
        self._abort(call, RpcFailure(Code.CANCELLED, "context canceled"))

    def leave(self, call: Call) -> None:
        """Continue a call whose caller is gone."""
        self.left_calls.add(call)
        call.when_done(partial(self.left_calls.discard, call))

    def next_due(self) -> datetime | None:
        """Return when the machine next has something to do by itself."""
        return self._timeline.next_due()

    def when_earlier(self, listener: Callable[[], None]) -> None:
        """Call whenever `next_due` moves to an earlier time."""
        self._world.timeline.when_earlier(listener)

    def pass_time(self, now: datetime) -> None:
        """Let happen what is due by then."""
        self._timeline.advance(now)

    def advance(self, now: datetime) -> tuple[FakeEvent, ...]:
        """Let time pass; the events that were delivered meanwhile."""
        delivered: list[FakeEvent] = []
        end = self._world.listen(delivered.append)
        self.pass_time(now)
        end()
        return tuple(delivered)

    def listen(self, listener: Callable[[FakeEvent], None]) -> Callable[[], None]:
        """Subscribe to every event from now on; the result unsubscribes."""
        return self._world.listen(listener)

    def cri_event(self, event: FakeEvent) -> pb.ContainerEventResponse | None:
        """Return the event as GetContainerEvents sends it, with the statuses of this moment."""
        if event.cri_type is None:
            return None
        container = self._world.containers.get(event.container_id)
        sandbox = container.sandbox if container is not None else self._world.sandboxes.get(event.container_id)
        answer = pb.ContainerEventResponse(
            container_id=event.container_id, container_event_type=event.cri_type, created_at=event.stamp
        )
        if sandbox is not None:
            answer.pod_sandbox_status.CopyFrom(sandbox_status(sandbox))
            answer.containers_statuses.extend(
                container_status(each, self._world.images) for each in sandbox.containers.values()
            )
        return answer

    def stored_images(self) -> tuple[StoredImage, ...]:
        return tuple(self._world.images.all())

    def sandboxes(self) -> tuple[Sandbox, ...]:
        return tuple(self._world.sandboxes.values())

    def containers(self) -> tuple[FakeContainer, ...]:
        return tuple(self._world.containers.values())

    def load_image(self, image: FakeImage) -> None:
        """Put an image into the store, as an import does."""
        self._image_calls.load(image)

    def set_condition(self, kind: str, *, status: bool, reason: str = "", message: str = "") -> None:
        """Change a condition that Status reports: RuntimeReady or NetworkReady."""
        self._world.conditions[kind] = pb.RuntimeCondition(type=kind, status=status, reason=reason, message=message)

    def end_container(self, container_id: str, exit_code: int, *, oom: bool = False) -> None:
        """End the container's process now, as if by itself."""
        self._processes.end(self._world.containers[container_id], exit_code, oom=oom)

    def kill_sandbox(self, sandbox_id: str) -> None:
        """Kill the sandbox's own process; its network stays until it is stopped."""
        self._processes.end_pause(self._world.sandboxes[sandbox_id])

    def reboot(self, *, clean: bool) -> None:
        """Boot the machine again: all processes end at once, calls and streams break, network namespaces are gone.

        In a clean shutdown processes are asked to end, and the runtime sees it; after a reset the runtime finds out
        when it starts. It sends no events of that: it has no listener then.
        """
        for call in tuple(self._calls):
            self._abort(call, RpcFailure(Code.UNAVAILABLE, "the connection was closed"))
        self.disconnect()
        for container in self._world.containers.values():
            if clean and container.is_running and container.is_alive:
                reaction = container.life.on_term
                self._processes.see_end(container, reaction.exit_code if reaction is not None else KILLED)
            self._processes.lose(container)
        for sandbox in self._world.sandboxes.values():
            self._processes.lose_pause(sandbox)

    def forget_everything(self) -> None:
        """Remove all sandboxes and containers, as a runtime does that starts afresh after a reboot."""
        for container in self.containers():
            self._world.release("container", container.name)
        for sandbox in self.sandboxes():
            self._world.release("sandbox", sandbox.name)
            self._world.free_ips(sandbox.ips)
        self._world.containers.clear()
        self._world.sandboxes.clear()

    def write_log(self, container_id: str, text: str, stream: Stream = "stdout") -> None:
        """Write output of the container, now."""
        self._processes.write(
            self._world.containers[container_id], OutputLine(at=timedelta(), text=text, stream=stream)
        )

    def publish(self, topic: str, body: Message) -> None:
        """Send an event that no call of the agent caused."""
        self._world.emit(topic, "", body)

    def disconnect(self) -> None:
        """Break every event stream, as a restart of the runtime does."""
        self.disconnected.fire()

    def _abort(self, call: Call, failure: RpcFailure) -> None:
        if not call.is_done:
            call.arming += 1
            if call.steps is not None:
                call.steps.close()
            self._finish(call, None, failure)

    def _begin(self, call: Call) -> None:
        if call.is_done:
            return  # it was given up before
        fault = self.faults.take(call.rpc, call.request)
        try:
            if fault is None:
                answer = self._handler(call.rpc)(call.request)
            else:
                answer = self._perform(call.rpc, call.request, fault)
        except RpcFailure as failure:
            self._finish(call, None, failure)
            return
        if isinstance(answer, Message):
            self._finish(call, answer, None)
        else:
            call.steps = answer
            self._resume(call, answer)

    def _perform(self, rpc: str, request: Message, fault: Fault) -> Steps:
        match fault.effect:
            case Fail(code=code, message=message):
                raise RpcFailure(code, message)
            case DelayCall(by=by, after_effect=False):
                yield CallWait(until=self.now + by)
                return (yield from self._handle(rpc, request))
            case DelayCall(by=by):
                answer = yield from self._handle(rpc, request)
                yield CallWait(until=self.now + by)
                return answer
            case Hang(after_effect=False):
                yield from _until_released(fault)
                return (yield from self._handle(rpc, request))
            case Hang():
                answer = yield from self._handle(rpc, request)
                yield from _until_released(fault)
                return answer
            case HalfDone(code=code, message=message):
                yield from self._handle(rpc, request)
                raise RpcFailure(code, message)
            case Twice():
                answer = yield from self._handle(rpc, request)
                yield from self._handle_again(rpc, request)
                return answer
            case unknown:
                assert_never(unknown)

    def _handler(self, rpc: str) -> Callable[[Any], Message | Steps]:
        handler = self._handlers.get(rpc)
        if handler is None:
            raise RpcFailure(Code.UNIMPLEMENTED, f"unknown method {rpc} for service runtime.v1.RuntimeService")
        return handler

    def _handle(self, rpc: str, request: Message) -> Steps:
        answer = self._handler(rpc)(request)
        return answer if isinstance(answer, Message) else (yield from answer)

    def _handle_again(self, rpc: str, request: Message) -> Steps:
        """Handle the call a second time, which may be refused; the caller never gets that answer."""
        try:
            return (yield from self._handle(rpc, request))
        except RpcFailure:
            return request

    def _resume(self, call: Call, steps: Steps) -> None:
        try:
            wait = next(steps)
        except StopIteration as stop:
            answer: Message = stop.value
            self._finish(call, answer, None)
        except RpcFailure as failure:
            self._finish(call, None, failure)
        else:
            self._arm(call, steps, wait)

    def _finish(self, call: Call, answer: Message | None, failure: RpcFailure | None) -> None:
        code = Code.OK if failure is None else failure.code
        self.history.append(AnswerRecord(self._timeline.now, call.rpc, code))
        self._calls.pop(call, None)
        call.finish(answer, failure)

    def _arm(self, call: Call, steps: Steps, wait: CallWait) -> None:
        """Resume once: when the time comes or the signal fires, whichever is first."""
        if not call.is_slow:
            call.is_slow = True
            call.when_slow()
        call.arming += 1
        arming = call.arming

        def resume() -> None:
            if call.arming == arming:
                call.arming += 1
                self._resume(call, steps)

        if wait.until is not None:
            self._world.timeline.at(wait.until, resume)
        if wait.on is not None:
            wait.on.listen(resume)


def _until_released(fault: Fault) -> Generator[CallWait, None, None]:
    while not fault.is_released:
        yield CallWait(on=fault.released)


def _missing(features: Features) -> list[str]:
    """Return the calls that containerd 1.6 does not have."""
    optional = {
        "RuntimeConfig": features.runtime_config,
        "UpdatePodSandboxResources": features.sandbox_resources,
        "CheckpointContainer": features.checkpoints,
        "ListMetricDescriptors": features.metrics,
        "ListPodSandboxMetrics": features.metrics,
    }
    return [rpc for rpc, is_there in optional.items() if not is_there]
