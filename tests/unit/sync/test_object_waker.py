"""Which pods look again when an object has changed."""

import asyncio

import pytest
from msgspec.structs import replace

from klet.aio.broadcast import Broadcast
from klet.api.container import EnvFromSource, SecretEnvSource
from klet.api.container_status import ContainerState, ContainerStateRunning, ContainerStateWaiting, ContainerStatus
from klet.api.pod import PodStatus
from klet.model.objects import ObjectKind, ObjectRef
from klet.pods.store import PodStore
from klet.status.board import StatusBoard
from klet.sync.object_waker import ObjectWaker, lacks_something, refers_to
from klet.testing.builders import make_container, make_pod
from klet.testing.clock import ManualClock

KEY = ObjectRef(ObjectKind.SECRET, "default", "key")
WAITING = ContainerState(waiting=ContainerStateWaiting(reason="CreateContainerConfigError"))
POD = make_pod(replace(make_container("c"), env_from=(EnvFromSource(secret_ref=SecretEnvSource(name="key")),)))


def status(state: ContainerState, kind: str = "container_statuses") -> PodStatus:
    return PodStatus(**{kind: (ContainerStatus(name="c", state=state),)})


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        pytest.param(KEY, True, id="its secret"),
        pytest.param(KEY._replace(name="other"), False, id="another secret"),
        pytest.param(KEY._replace(namespace="other"), False, id="a secret of another namespace"),
        pytest.param(KEY._replace(kind=ObjectKind.CONFIG_MAP), False, id="a config map of that name"),
    ],
)
def test_refers_to(ref, expected):
    assert refers_to(POD, ref) is expected


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        pytest.param(status(WAITING), True, id="a container"),
        pytest.param(status(WAITING, "init_container_statuses"), True, id="an init container"),
        pytest.param(status(WAITING, "ephemeral_container_statuses"), True, id="an ephemeral container"),
        pytest.param(status(ContainerState(running=ContainerStateRunning())), False, id="all run"),
        pytest.param(
            status(ContainerState(waiting=ContainerStateWaiting(reason="ImagePullBackOff"))), False, id="an image"
        ),
        pytest.param(PodStatus(), False, id="nothing is known"),
    ],
)
def test_lacks_something(reported, expected):
    assert lacks_something(reported) is expected


class Changes:
    def __init__(self):
        self._changes = Broadcast[ObjectRef]()

    def send(self, ref):
        self._changes.send(ref)

    def changes(self):
        return self._changes.subscribe(limit=2)


class Workers:
    def __init__(self):
        self.woken = []
        self.rung = asyncio.Event()

    def wake(self, uid):
        self.woken.append(uid)
        self.rung.set()


@pytest.mark.parametrize(
    "refs",
    [
        pytest.param([KEY], id="notified"),
        pytest.param([KEY] + [KEY._replace(name=f"other-{n}") for n in range(5)], id="so much that some was lost"),
    ],
)
async def test_whoever_lacks_it_is_woken(refs):
    pods, objects, workers = PodStore(), Changes(), Workers()
    pods.put(POD)
    pods.put(replace(POD, metadata=replace(POD.metadata, uid="uid-2", name="well")))
    known = {"uid-1": status(WAITING), "uid-2": status(ContainerState(running=ContainerStateRunning()))}
    statuses = StatusBoard(clock=ManualClock(), restored=known)
    wakes = ObjectWaker(objects=objects, pods=pods, statuses=statuses, workers=workers)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(wakes.run())
        await asyncio.sleep(0)
        for ref in refs:
            objects.send(ref)
        await workers.rung.wait()
        task.cancel()
    assert workers.woken == ["uid-1"]
