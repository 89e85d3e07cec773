"""Volumes come, are kept up to date and go, each at its own pace."""

import asyncio
import random
from datetime import timedelta

import pytest

from klet.aio.broadcast import Broadcast
from klet.allocation.book import AllocationBook
from klet.api.quantity import Quantity
from klet.errors import KletError
from klet.metrics import MetricRegistry
from klet.model.allocation import PodAllocation
from klet.model.objects import ObjectKind, ObjectRef
from klet.model.pods import uid_of
from klet.objectcache.claims import StandaloneClaims
from klet.testing.clock import START
from klet.testing.devices import MemoryDevices
from klet.volumes.build import ManagerPorts, build_manager
from klet.volumes.directories import PodDirectories
from klet.volumes.errors import WaitFailed
from klet.volumes.keeper import VolumeKeeper
from klet.volumes.manager import MountedVolume
from klet.volumes.names import Layout
from klet.volumes.plugins.base import VolumeAttributes, VolumePlugin

CFG = ObjectRef(ObjectKind.CONFIG_MAP, "ns", "cfg")
EMPTY = {"name": "e", "emptyDir": {}}
CONFIG = {"name": "v", "configMap": {"name": "cfg"}}


class Scripted(VolumePlugin):
    """A plugin that does what a test says, and notes what it is asked."""

    def __init__(self):
        self.ups = []
        self.given = []
        self.downs = []
        self.error = ""
        self.fault = None
        self.gate = None
        self.old_at = None

    def attributes(self, spec):
        return VolumeAttributes(read_only=self.requires_remount and self.supports(spec))

    def path(self, uid, spec):
        return f"/{uid}/{spec.name}"

    async def set_up(self, request):
        self.ups.append((request.uid, request.volume.name, request.is_remount, dict(request.pod.metadata.labels)))
        self.given.append(request.allocation)
        await self._act()
        return self.old_at

    async def tear_down(self, uid, name):
        self.downs.append((uid, name))
        await self._act()

    async def _act(self):
        if self.gate is not None:
            await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        if self.error:
            raise KletError(self.error)


class Plain(Scripted):
    name = "kubernetes.io/empty-dir"

    def supports(self, spec):
        return spec.volume.empty_dir is not None


class Shown(Scripted):
    name = "kubernetes.io/configmap"
    requires_remount = True

    def supports(self, spec):
        return spec.volume.config_map is not None


class Notes:
    """A journal that is only a list."""

    def __init__(self):
        self.findings = []

    def record(self, finding, *, parent=None):
        assert parent is None
        self.findings.append(finding)
        return f"cause-{len(self.findings)}"


class Node:
    """A manager that runs, and its plugins."""

    def __init__(self, machine):
        self.clock = machine.clock
        self.root = machine.root
        self.plain, self.shown = Plain(), Shown()
        self.notes = Notes()
        self.allocations = AllocationBook()
        self.registry = MetricRegistry()
        self.volumes = build_manager(
            ManagerPorts(
                registry=self.registry,
                plugins=(self.plain, self.shown),
                allocations=self.allocations,
                disk=PodDirectories(layout=Layout(machine.root), threads=machine.threads),
                recorder=self.notes,
                refresh=timedelta(minutes=1),
                randomness=random.Random(1),
                clock=machine.clock,
                claims=StandaloneClaims(),
                find_node=lambda: None,
                layout=Layout(machine.root),
                devices=MemoryDevices(),
            )
        )

    async def settle(self, duration=timedelta()):
        await self.clock.run(duration)

    async def outcome(self, work, *, after=timedelta()):
        """What comes of some waiting, once that much time has passed."""
        task = asyncio.gather(work, return_exceptions=True)
        await self.settle(after)
        assert task.done()
        return (await task)[0]


@pytest.fixture
async def node(machine):
    made = Node(machine)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(made.volumes.run())
        yield made
        task.cancel()


async def test_a_pod_gets_what_it_uses(node, pod_with):
    pod = pod_with(EMPTY, CONFIG, {"name": "unused", "emptyDir": {}}, mounts=[
        {"name": "e", "mountPath": "/e"}, {"name": "v", "mountPath": "/v"},
    ])  # fmt: skip
    assert await node.outcome(node.volumes.wait_for_attach_and_mount(pod)) is None
    assert node.volumes.mounted_volumes("u") == {
        "e": MountedVolume("/u/e", VolumeAttributes(), inner_name="e"),
        "v": MountedVolume("/u/v", VolumeAttributes(read_only=True), inner_name="v"),
    }
    assert node.volumes.volumes_in_use() == ()


async def test_a_pod_without_volumes_waits_for_nothing(node, pod_with):
    await node.volumes.wait_for_attach_and_mount(pod_with())
    assert node.plain.ups == []


async def test_a_pod_that_has_its_volumes_waits_for_nothing(node, pod_with):
    pod = pod_with(EMPTY, CONFIG)
    await node.outcome(node.volumes.wait_for_attach_and_mount(pod))
    await node.volumes.wait_for_attach_and_mount(pod)
    await node.settle()
    assert (len(node.plain.ups), len(node.shown.ups)) == (1, 1)


async def test_a_failure_is_reported_and_tried_again(node, pod_with):
    node.shown.error = 'configmap "cfg" not found'
    waiting = asyncio.gather(node.volumes.wait_for_attach_and_mount(pod_with(CONFIG)))
    await node.settle(timedelta(milliseconds=1600))
    assert len(node.shown.ups) == 3  # at once, after half a second, after a second more
    finding = node.notes.findings[0]
    assert finding.message == 'MountVolume.SetUp failed for volume "v" : configmap "cfg" not found'
    assert (finding.decision, finding.subject.name) == ("FailedMount", "p")
    assert finding.next_at == START + timedelta(milliseconds=500)
    node.shown.error = ""
    await node.settle(timedelta(seconds=2))
    await waiting


async def test_a_fault_of_a_plugin_concerns_one_volume_alone(node, pod_with, caplog):
    node.shown.fault = RecursionError("too deep " * 1000)
    waiting = asyncio.gather(node.volumes.wait_for_attach_and_mount(pod_with(CONFIG)))
    await node.settle(timedelta(milliseconds=100))
    finding = node.notes.findings[0]
    assert finding.message.startswith('MountVolume.SetUp failed for volume "v" : RecursionError: too deep too')
    assert len(finding.message) < 1000
    assert caplog.messages == ["A volume could not be handled"]
    await node.outcome(node.volumes.wait_for_attach_and_mount(pod_with(EMPTY, uid="u2")))
    node.shown.fault = None
    await node.settle(timedelta(seconds=2))
    await waiting
    node.shown.fault = RecursionError("again")
    ending = asyncio.gather(node.volumes.wait_for_unmount("u"))
    await node.settle()
    assert node.notes.findings[-1].message.endswith("RecursionError: again")
    node.shown.fault = None
    await node.settle(timedelta(seconds=2))
    await ending


async def test_patience_ends(node, pod_with):
    node.shown.error = "no"
    pod = pod_with(EMPTY, CONFIG)
    error = await node.outcome(node.volumes.wait_for_attach_and_mount(pod), after=timedelta(minutes=2, seconds=3))
    assert isinstance(error, WaitFailed)
    assert error.is_timeout
    assert str(error) == (
        "unmounted volumes=[v], unattached volumes=[], failed to process volumes=[]: context deadline exceeded"
    )


async def test_a_kind_that_nobody_knows_is_reported_at_once(node, pod_with):
    pod = pod_with(EMPTY, {"name": "n", "nfs": {"server": "s", "path": "/"}}, {"name": "g", "glusterfs": {}})
    error = await node.outcome(node.volumes.wait_for_attach_and_mount(pod))
    assert not error.is_timeout
    assert str(error) == (
        "unmounted volumes=[e g n], unattached volumes=[], failed to process volumes=[g n]: "
        'failed to get Plugin from volumeSpec for volume "g" err=no volume plugin matched; '
        'failed to get Plugin from volumeSpec for volume "n" err=no volume plugin matched'
    )
    await node.settle()
    assert node.plain.ups != []  # what can be set up is


async def test_one_pod_holds_up_no_other(node, pod_with):
    node.plain.gate = asyncio.Event()
    stuck = asyncio.gather(node.volumes.wait_for_attach_and_mount(pod_with(EMPTY, uid="stuck")))
    assert await node.outcome(node.volumes.wait_for_attach_and_mount(pod_with(CONFIG))) is None
    node.plain.gate.set()
    await stuck


async def test_a_wait_may_be_given_up(node, pod_with):
    node.plain.gate = asyncio.Event()
    waiting = asyncio.gather(node.volumes.wait_for_attach_and_mount(pod_with(EMPTY)))
    await node.settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    node.plain.gate.set()
    assert await node.outcome(node.volumes.wait_for_unmount("u")) is None
    assert node.plain.downs == [("u", "e")]


async def test_a_changed_object_is_shown_at_once(node, pod_with):
    await node.outcome(node.volumes.wait_for_attach_and_mount(pod_with(CONFIG)))
    node.volumes.objects_changed(CFG)
    node.volumes.objects_changed(ObjectRef(ObjectKind.SECRET, "ns", "cfg"))
    await node.settle()
    assert [up[2] for up in node.shown.ups] == [False, True]


async def test_a_change_during_the_work_is_not_lost(node, pod_with):
    node.shown.gate = asyncio.Event()
    waiting = asyncio.gather(node.volumes.wait_for_attach_and_mount(pod_with(CONFIG)))
    await node.settle()
    node.volumes.objects_changed(CFG)
    node.shown.gate.set()
    await node.settle()
    await waiting
    assert [up[2] for up in node.shown.ups] == [False, True]


async def test_a_change_waits_for_no_back_off(node, pod_with):
    node.shown.error = "missing"
    waiting = asyncio.gather(node.volumes.wait_for_attach_and_mount(pod_with(CONFIG)))
    await node.settle(timedelta(seconds=40))
    node.shown.error = ""
    node.volumes.objects_changed(CFG)
    await node.settle()
    await waiting


async def test_a_failed_renewal_leaves_the_volume_mounted(node, pod_with):
    pod = pod_with(CONFIG)
    await node.outcome(node.volumes.wait_for_attach_and_mount(pod))
    node.shown.error = "gone"
    node.volumes.objects_changed(CFG)
    await node.settle()
    assert await node.outcome(node.volumes.wait_for_attach_and_mount(pod)) is None
    assert node.notes.findings[-1].message == 'MountVolume.SetUp failed for volume "v" : gone'
    assert "v" in node.volumes.mounted_volumes("u")


async def test_other_labels_are_shown(node, pod_with):
    await node.outcome(node.volumes.wait_for_attach_and_mount(pod_with(CONFIG)))
    node.volumes.process(pod_with(CONFIG, labels={"app": "y"}))
    node.volumes.process(pod_with(CONFIG, labels={"app": "y"}))
    await node.settle()
    assert [up[3] for up in node.shown.ups] == [{"app": "x"}, {"app": "y"}]


async def test_what_a_pod_is_given_later_is_shown(node, pod_with):
    pod, large = pod_with(EMPTY, CONFIG), PodAllocation(overhead={"cpu": Quantity.parse("1")})
    await node.outcome(node.volumes.wait_for_attach_and_mount(pod))
    small = node.allocations.of(pod)
    for given in (small, large, large):
        node.allocations.admit("u", given)
        node.volumes.process(pod)
    await node.settle()
    assert (node.shown.given, node.plain.given) == ([small, large], [small])


async def test_content_is_looked_at_once_in_a_while(node, pod_with):
    await node.outcome(node.volumes.wait_for_attach_and_mount(pod_with(EMPTY, CONFIG)))
    await node.settle(timedelta(minutes=10))
    assert 7 <= len(node.shown.ups) <= 11  # every 60 to 90 seconds
    assert len(node.plain.ups) == 1


@pytest.mark.parametrize("step", [timedelta(days=365), timedelta(days=-365)], ids=["forward", "back"])
async def test_content_is_looked_at_whatever_the_time_is_set_to(node, pod_with, step):
    """A token would run out otherwise: what was due at a time that is a year away would not be renewed."""
    await node.outcome(node.volumes.wait_for_attach_and_mount(pod_with(CONFIG)))
    node.clock.step = step
    await node.settle(timedelta(minutes=10))
    assert 7 <= len(node.shown.ups) <= 11


async def test_a_failure_is_tried_again_though_the_time_is_set_back(node, pod_with):
    node.shown.error = "missing"
    waiting = asyncio.gather(node.volumes.wait_for_attach_and_mount(pod_with(CONFIG)))
    await node.settle(timedelta(seconds=3))
    node.clock.step = timedelta(days=-365)
    node.shown.error = ""
    await node.settle(timedelta(seconds=5))
    await waiting


async def test_content_that_grows_old_is_renewed_when_it_does(node, pod_with):
    node.shown.old_at = START + timedelta(seconds=20)
    await node.outcome(node.volumes.wait_for_attach_and_mount(pod_with(CONFIG)))
    await node.settle(timedelta(seconds=19))
    assert len(node.shown.ups) == 1
    await node.settle(timedelta(seconds=1))
    assert len(node.shown.ups) == 2
    await node.settle(timedelta(seconds=59))  # what stays old is not asked for again and again
    assert len(node.shown.ups) == 2


async def test_volumes_go_with_their_pod(node, pod_with):
    await node.outcome(node.volumes.wait_for_attach_and_mount(pod_with(EMPTY, CONFIG)))
    assert await node.volumes.pod_volumes_exist("u")
    assert await node.outcome(node.volumes.wait_for_unmount("u")) is None
    assert (node.plain.downs, node.shown.downs) == ([("u", "e")], [("u", "v")])
    assert node.volumes.mounted_volumes("u") == {}
    assert not await node.volumes.pod_volumes_exist("u")
    node.volumes.objects_changed(CFG)
    await node.settle(timedelta(minutes=5))
    assert len(node.shown.ups) == 1


async def test_a_volume_that_does_not_go_is_tried_again(node, pod_with):
    await node.outcome(node.volumes.wait_for_attach_and_mount(pod_with(EMPTY)))
    node.plain.error = "busy"
    ending = asyncio.gather(node.volumes.wait_for_unmount("u"))
    await node.settle()
    (finding,) = node.notes.findings
    assert finding.message == 'UnmountVolume.TearDown failed for volume "kubernetes.io/empty-dir/u-e" : busy'
    assert finding.decision != "FailedMount"
    assert finding.subject.name == "p"
    node.plain.error = ""
    await node.settle(timedelta(milliseconds=500))
    await ending


async def test_patience_with_a_volume_that_does_not_go_ends(node, pod_with):
    await node.outcome(node.volumes.wait_for_attach_and_mount(pod_with(EMPTY)))
    node.plain.error = "busy"
    error = await node.outcome(node.volumes.wait_for_unmount("u"), after=timedelta(minutes=2, seconds=3))
    assert str(error) == "mounted volumes=[kubernetes.io/empty-dir/u-e]: context deadline exceeded"
    assert await node.volumes.pod_volumes_exist("u")
    node.plain.error = ""
    assert await node.outcome(node.volumes.wait_for_unmount("u"), after=timedelta(minutes=2)) is None


async def test_a_mount_under_way_ends_before_the_unmount(node, pod_with):
    node.plain.gate = asyncio.Event()
    node.volumes.process(pod_with(EMPTY))
    await node.settle()
    ending = asyncio.gather(node.volumes.wait_for_unmount("u"))
    await node.settle()
    assert node.plain.downs == []
    node.plain.gate.set()
    await node.settle()
    await ending
    assert node.plain.downs == [("u", "e")]


async def test_what_an_earlier_life_left_goes_too(node):
    (node.root / "pods" / "u" / "volumes" / "kubernetes.io~empty-dir" / "old").mkdir(parents=True)
    (node.root / "pods" / "u" / "volumes" / "example.org~odd" / "other").mkdir(parents=True)
    assert await node.outcome(node.volumes.wait_for_unmount("u")) is None
    assert node.plain.downs == [("u", "old")]


async def test_the_same_pod_may_come_back(node, pod_with):
    pod = pod_with(EMPTY)
    await node.outcome(node.volumes.wait_for_attach_and_mount(pod))
    await node.outcome(node.volumes.wait_for_unmount("u"))
    assert await node.outcome(node.volumes.wait_for_attach_and_mount(pod)) is None
    assert len(node.plain.ups) == 2


class Board:
    """Changes that a test sends."""

    def __init__(self, subscription):
        self.subscription = subscription

    def changes(self):
        return self.subscription


async def test_the_keeper_hands_changes_on(node, pod_with):
    source = Broadcast()
    subscription = source.subscribe(limit=1)
    await node.outcome(node.volumes.wait_for_attach_and_mount(pod_with(CONFIG)))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(VolumeKeeper(objects=(Board(subscription),), volumes=node.volumes).run())
        source.send(CFG)
        await node.settle()
        assert len(node.shown.ups) == 2
        source.send(CFG)
        source.send(ObjectRef(ObjectKind.CONFIG_MAP, "ns", "other"))  # and the first is lost
        await node.settle()
        assert len(node.shown.ups) == 3
        task.cancel()


async def test_operations_and_volumes_are_counted(node, pod_with):
    def counted(family):
        lines = node.registry.write().decode().splitlines()
        return {line.removeprefix(family) for line in lines if line.startswith(family) and not line.endswith(" 0")}

    plugin = 'volume_plugin="kubernetes.io/configmap"'
    node.shown.error = 'configmap "cfg" not found'
    pod = pod_with(CONFIG)
    node.volumes.process(pod)
    await node.settle()
    labels = f'migrated="false",operation_name="volume_mount",status="fail-unknown",{plugin}'
    assert counted("storage_operation_duration_seconds_count") == {f"{{{labels}}} 1"}
    assert counted("volume_manager_total_volumes") == {
        '{plugin_name="kubernetes.io/configmap",state="desired_state_of_world"} 1'
    }
    node.shown.error = ""
    await node.settle(timedelta(milliseconds=500))
    of_plugin = 'operation_name="overall_volume_mount",plugin_name="kubernetes.io/configmap"'
    assert counted("volume_operation_total_seconds_sum") == {f"{{{of_plugin}}} 0.5"}
    assert len(counted("volume_manager_total_volumes")) == 2
    await node.outcome(node.volumes.wait_for_unmount(uid_of(pod)))
    operations = counted("storage_operation_duration_seconds_count")
    assert f'{{migrated="false",operation_name="volume_unmount",status="success",{plugin}}} 1' in operations
    assert counted("volume_manager_total_volumes") == set()
