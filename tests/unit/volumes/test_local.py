"""Directories of the machine as PersistentVolumes."""

import asyncio
import errno
import os
import stat
from datetime import timedelta

import pytest

from klet.api.codec import convert
from klet.api.storage import PersistentVolume
from klet.host.errors import MountError
from klet.model.allocation import desired_allocation
from klet.model.reasons import Reason
from klet.testing.clock import ManualClock
from klet.testing.mounts import BOUND
from klet.volumes.errors import VolumeSetupError
from klet.volumes.ownership import change_ownership
from klet.volumes.plugins.base import MountRequest, VolumeAttributes
from klet.volumes.spec import MOUNT_OPTIONS, VolumeSpec

NAME = "kubernetes.io/local-volume"
CLAIM = {"persistentVolumeClaim": {"claimName": "c"}}
# Only root may give files to groups that it is not in.
GROUP = 4242 if os.geteuid() == 0 else os.getegid()


@pytest.fixture
def disk(tmp_path):
    made = tmp_path / "disk"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def plugin(machine):
    return machine.plugins[NAME]


@pytest.fixture
def request_for(pod_with, disk):
    def make(*, uid="u", options=(), annotations=None, read_only=False, path=None, **context):
        pod = pod_with(CLAIM, uid=uid, securityContext=context)
        spec = {"local": {"path": str(disk if path is None else path)}, "mountOptions": options}
        volume = convert(PersistentVolume, {"metadata": {"name": "pv", "annotations": annotations or {}}, "spec": spec})
        found = VolumeSpec(pod.spec.volumes[0], volume, read_only=read_only)
        return MountRequest(pod=pod, allocation=desired_allocation(pod), spec=found)

    return make


@pytest.mark.parametrize(
    ("given", "options"),
    [
        pytest.param({}, ("bind",), id="none"),
        pytest.param({"read_only": True}, ("bind", "ro"), id="it is claimed for reading"),
        pytest.param({"options": ["noexec", "nodev"]}, ("bind", "nodev", "noexec"), id="those of the spec"),
        pytest.param(
            {"options": ["noexec"], "annotations": {MOUNT_OPTIONS: "nosuid,"}},
            ("bind", "nosuid"),
            id="those of the annotation come first",
        ),
    ],
)
async def test_mount_options(machine, plugin, request_for, disk, given, options):
    request = request_for(**given)
    assert await plugin.set_up(request) is None
    target = machine.path(NAME, "pv")
    assert machine.mounter.mounts == {target: (str(disk), BOUND, options)}
    assert plugin.path("u", request.spec) == str(target)


@pytest.mark.parametrize(
    ("read_only", "attributes"),
    [
        pytest.param(False, VolumeAttributes(managed=True, relabels=True), id="for writing"),
        pytest.param(True, VolumeAttributes(read_only=True, relabels=True), id="for reading"),
    ],
)
def test_attributes(plugin, request_for, read_only, attributes):
    assert plugin.attributes(request_for(read_only=read_only).spec) == attributes


def test_only_local_volumes_are_supported(plugin, request_for, pod_with):
    other = convert(PersistentVolume, {"metadata": {"name": "pv"}, "spec": {"hostPath": {"path": "/"}}})
    entry = pod_with(CLAIM).spec.volumes[0]
    supported = [plugin.supports(spec) for spec in (request_for().spec, VolumeSpec(entry, other), VolumeSpec(entry))]
    assert supported == [True, False, False]


def test_pods_share_its_name(plugin, request_for):
    assert {plugin.volume_name(request_for(uid=uid).spec) for uid in ("u", "w")} == {f"{NAME}/pv"}


async def test_it_is_given_to_the_group_of_the_pod(machine, plugin, request_for):
    await plugin.set_up(request_for(fsGroup=GROUP))
    found = machine.path(NAME, "pv").stat()
    assert (found.st_gid, stat.S_IMODE(found.st_mode)) == (GROUP, 0o2770)


class HeldThreads:
    """Threads of which the walk over the files takes as long as the test wants."""

    def __init__(self):
        self.end = asyncio.Event()

    async def run(self, function, *args):
        if function is change_ownership:
            await self.end.wait()
        return function(*args)


async def test_a_slow_change_of_its_owner_is_reported(machine, request_for):
    machine.clock, machine.threads = ManualClock(), HeldThreads()
    plugin = machine.build(has_api=True)[NAME]
    async with asyncio.TaskGroup() as group:
        setting_up = group.create_task(plugin.set_up(request_for(fsGroup=GROUP)))
        await machine.clock.run(timedelta(seconds=100))
        machine.threads.end.set()
        await setting_up
    first, second = machine.notes.findings
    assert {first.decision, second.decision} == {Reason.VOLUME_PERMISSION_CHANGE_IN_PROGRESS}
    assert "/pv is taking longer than expected, consider using OnRootMismatch" in first.message
    assert second.message.endswith("processed 0 files.")


async def test_a_claim_for_reading_changes_no_owner(machine, plugin, request_for):
    await plugin.set_up(request_for(fsGroup=GROUP, read_only=True))
    assert stat.S_IMODE(machine.path(NAME, "pv").stat().st_mode) == 0o750


async def test_a_second_pod_changes_no_owner_and_is_warned(machine, plugin, request_for, disk):
    await plugin.set_up(request_for(uid="first"))
    await plugin.set_up(request_for(fsGroup=GROUP + 1))
    assert stat.S_IMODE(machine.path(NAME, "pv").stat().st_mode) == 0o750
    [finding] = machine.notes.findings
    assert finding.decision == Reason.ALREADY_MOUNTED_VOLUME
    assert finding.message == (
        f"The requested fsGroup is {GROUP + 1}, but the volume pv has GID {disk.stat().st_gid}. "
        "The volume may not be shareable."
    )


async def test_a_second_pod_of_the_same_group_is_not_warned(machine, plugin, request_for, disk):
    await plugin.set_up(request_for(uid="first"))
    await plugin.set_up(request_for(fsGroup=disk.stat().st_gid))
    assert machine.notes.findings == []


async def test_of_two_pods_at_once_only_one_changes_the_owner(machine, plugin, request_for):
    async with asyncio.TaskGroup() as group:
        for uid in ("u", "w"):
            group.create_task(plugin.set_up(request_for(uid=uid, fsGroup=GROUP)))
    targets = machine.mounter.mounts
    assert sorted(stat.S_IMODE(target.stat().st_mode) for target in targets) == [0o750, 0o2770]


async def test_it_goes_and_its_content_stays(machine, plugin, request_for, disk):
    (disk / "data").write_text("kept")
    await plugin.set_up(request_for())
    await plugin.tear_down("u", "pv")
    assert (machine.mounter.mounts, machine.path(NAME, "pv").exists()) == ({}, False)
    assert (disk / "data").read_text() == "kept"
    await plugin.tear_down("u", "pv")


async def test_a_refused_mount_can_be_tried_again(machine, plugin, request_for):
    machine.mounter.error = MountError("refused", errno=errno.EPERM)
    with pytest.raises(MountError):
        await plugin.set_up(request_for())
    assert not machine.path(NAME, "pv").exists()
    machine.mounter.error = None
    await plugin.set_up(request_for())
    assert list(machine.mounter.mounts) == [machine.path(NAME, "pv")]


@pytest.mark.parametrize("path", ["", "..", "/a/../b", "relative", "/nul\0", "/dev/null", "/nowhere/at/all"])
async def test_a_hostile_path_mounts_nothing(machine, plugin, request_for, path):
    with pytest.raises(VolumeSetupError):
        await plugin.set_up(request_for(path=path))
    assert (machine.mounter.mounts, machine.path(NAME, "pv").exists()) == ({}, False)
