"""The state of the fake runtime: sandboxes, containers, names, images, time, and the sending of events."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from google.protobuf.message import Message
from msgspec import Struct

from klet.cri.errors import Code
from klet.testing.fake_runtime.calls import CallSignal, RpcFailure
from klet.testing.fake_runtime.events import FakeEvent
from klet.testing.fake_runtime.faults import DropEvent, FaultBook, Late, Repeat
from klet.testing.fake_runtime.images import ImageStore
from klet.testing.fake_runtime.lives import ContainerLife
from klet.testing.fake_runtime.logs import LogSink
from klet.testing.fake_runtime.timeline import Timer, TimerQueue
from klet.wire import cri_v1_pb2 as pb


class Features(Struct, frozen=True):
    """What the fake can do beyond containerd 1.6, and how it is set up. The defaults are containerd 1.6's."""

    container_events: bool = False
    runtime_config: bool = False
    sandbox_resources: bool = False
    metrics: bool = False
    checkpoints: bool = False
    dual_stack: bool = False
    user_namespaces: bool = False
    recursive_read_only_mounts: bool = False
    supplemental_groups_policy: bool = False
    runtime_handlers: tuple[str, ...] = ("", "runc")
    cgroup_driver: pb.CgroupDriver = pb.CGROUPFS
    sandbox_image: str = "registry.k8s.io/pause:3.6"
    streaming_url: str = "http://127.0.0.1:1"
    # How long the CRI's view stays behind containerd's own exit events.
    view_lag: timedelta = timedelta()
    # How long after the exit the runtime learns that it was the OOM killer.
    oom_lag: timedelta = timedelta()


@dataclass(slots=True, eq=False)
class Sandbox:
    """A pod sandbox and its containers."""

    id: str
    name: str
    config: pb.PodSandboxConfig
    runtime_handler: str
    created_at: int
    pid: int
    ips: tuple[str, ...]
    state: pb.PodSandboxState = pb.SANDBOX_READY
    has_network: bool = True
    """Its addresses are its own until it is stopped."""
    has_namespace: bool = True
    """Its network namespace is there: a reboot takes all of them."""
    containers: dict[str, "FakeContainer"] = field(default_factory=dict)
    labels: dict[str, str] = field(init=False)
    item: pb.PodSandbox | None = None
    status: pb.PodSandboxStatus | None = None
    """What the CRI showed of it last."""
    shows: tuple[object, ...] = ()
    """What that was made of."""

    def __post_init__(self) -> None:
        # Every list looks at the labels of everything, and a message's own map is slow.
        self.labels = dict(self.config.labels)

    @property
    def is_ready(self) -> bool:
        return self.state == pb.SANDBOX_READY

    @property
    def namespaces(self) -> pb.NamespaceOption:
        return self.config.linux.security_context.namespace_options


@dataclass(slots=True, eq=False)
class FakeContainer:
    """A container as the CRI shows it, and its process."""

    id: str
    name: str
    sandbox: Sandbox
    config: pb.ContainerConfig
    image_id: str
    log_path: str
    life: ContainerLife
    created_at: int
    resources: pb.LinuxContainerResources
    state: pb.ContainerState = pb.CONTAINER_CREATED
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    pid: int = 0
    is_alive: bool = False
    was_signalled: bool = False
    timers: list[Timer] = field(default_factory=list)
    ended: CallSignal = field(default_factory=CallSignal)
    exited: CallSignal = field(default_factory=CallSignal)
    labels: dict[str, str] = field(init=False)
    item: pb.Container | None = None
    status: pb.ContainerStatus | None = None
    """What the CRI showed of it last."""
    shows: tuple[object, ...] = ()
    """What that was made of."""

    def __post_init__(self) -> None:
        self.labels = dict(self.config.labels)

    @property
    def is_running(self) -> bool:
        return self.state == pb.CONTAINER_RUNNING


class World:
    """Everything that the handlers of calls share."""

    def __init__(
        self, *, start: datetime, rng: random.Random, sink: LogSink, features: Features, faults: FaultBook
    ) -> None:
        self.timeline = TimerQueue(start)
        self.random = rng
        self.sink = sink
        self.features = features
        self.images = ImageStore()
        self.sandboxes: dict[str, Sandbox] = {}
        self.containers: dict[str, FakeContainer] = {}
        self.conditions = {
            "RuntimeReady": pb.RuntimeCondition(type="RuntimeReady", status=True),
            "NetworkReady": pb.RuntimeCondition(type="NetworkReady", status=True),
        }
        self._faults = faults
        self._listeners: list[Callable[[FakeEvent], None]] = []
        self._names: dict[tuple[str, str], str] = {}
        self._pids = 1000
        self._addresses = 1
        self._taken: set[int] = set()

    def new_id(self) -> str:
        return f"{self.random.getrandbits(256):064x}"

    def new_pid(self) -> int:
        self._pids += 1
        return self._pids

    def new_ips(self) -> tuple[str, ...]:
        """Return the next free addresses, in turn, as a host-local allocator gives them out."""
        for _ in range(1 << 16):
            self._addresses = self._addresses % 0xFFFE + 1
            if self._addresses not in self._taken:
                self._taken.add(self._addresses)
                high, low = divmod(self._addresses, 256)
                ip = f"10.88.{high}.{low}"
                return (ip, f"fd00:88::{high:02x}{low:02x}") if self.features.dual_stack else (ip,)
        raise RpcFailure(Code.UNKNOWN, "failed to allocate for range 0: no IP addresses available in range set")

    def free_ips(self, ips: tuple[str, ...]) -> None:
        for ip in ips[:1]:
            high, low = ip.split(".")[2:]
            self._taken.discard(int(high) * 256 + int(low))

    def reserve(self, kind: str, name: str, id_: str) -> None:
        """Reserve a name: they are unique among sandboxes, and among containers."""
        holder = self._names.setdefault((kind, name), id_)
        if holder != id_:
            raise RpcFailure(
                Code.UNKNOWN, f'failed to reserve {kind} name "{name}": name "{name}" is reserved for "{holder}"'
            )

    def release(self, kind: str, name: str) -> None:
        self._names.pop((kind, name), None)

    def listen(self, listener: Callable[[FakeEvent], None]) -> Callable[[], None]:
        """Subscribe to every event from now on; the result unsubscribes."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def emit(self, topic: str, container_id: str, body: Message) -> None:
        event = FakeEvent(topic=topic, stamp=self.timeline.stamp(), container_id=container_id, body=body)
        fault = self._faults.take_event(event)
        if fault is None:
            self._deliver(event)
            return
        match fault.effect:
            case DropEvent():
                pass
            case Late(by=by):
                self.timeline.at(self.timeline.now + by, lambda: self._deliver(event))
            case Repeat():
                self._deliver(event)
                self._deliver(event)

    def _deliver(self, event: FakeEvent) -> None:
        for listener in self._listeners.copy():
            listener(event)
