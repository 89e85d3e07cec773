"""No removal crosses a mount: somebody's filesystem is mounted wherever the agent removes, replaces or empties files.

What is mounted holds the very names that are about to be removed. It is mounted at the place itself, above and below
it; it is another filesystem, or a directory of the same one; it is there from the start, or comes at any moment of the
removal. `klet.testing.removals` says which code each of these places stands for.
"""

import asyncio
import functools
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from klet.aio.threads import Threads
from klet.checkpoint import CheckpointDamaged, CheckpointFile
from klet.cli.node.node import find_node
from klet.cli.node.supervisor import trim_log
from klet.cli.node.teardown import purge
from klet.errors import KletError
from klet.host import files, mounts
from klet.host.cgroups import tree
from klet.host.errors import MountInTree
from klet.journal.database import set_aside
from klet.logs.rotated_files import list_rotated, restore_log, tidy_rotated
from klet.offline.object_files import ObjectFiles
from klet.offline.store import open_store
from klet.runtime.config.mapping_files import PodMappingFiles
from klet.runtime.config.sub_paths import BoundSubPaths
from klet.runtime.log_files import LogDirectory, LogFiles
from klet.runtime.pod_files import PodFiles
from klet.testing.builders import make_pod
from klet.testing.clock import ManualClock
from klet.testing.marked_mounts import MarkedMount, MountKind, before_call, private_base
from klet.testing.removals import REMOVALS
from klet.volumes.atomic_writer import FileProjection, write_payload
from klet.volumes.csi import directories
from klet.volumes.csi.places import CsiLayout
from klet.volumes.csi.vol_data import VolumeData
from klet.volumes.device_host import BlockMapping
from klet.volumes.directories import PodDirectories
from klet.volumes.host_devices import DeviceFiles
from klet.volumes.host_mounter import HostMounter
from klet.volumes.local_directories import LocalDirectories
from klet.volumes.names import Layout
from klet.volumes.scratch import Scratch, ScratchDirectories

pytestmark = [pytest.mark.root, pytest.mark.real_machine]

UID = "u-1"
NOW = datetime(2030, 1, 1, 12, 0, 0, tzinfo=UTC)
POD = f"pods/{UID}"
LOGS = f"logs/default_pod_{UID}"
LOG = f"{LOGS}/main/0.log"
SCRATCHES = f"{POD}/volumes/kubernetes.io~empty-dir"
SCRATCH = f"{SCRATCHES}/v"
MARKERS = f"{POD}/plugins/kubernetes.io~empty-dir"
LOCAL = f"{POD}/volumes/kubernetes.io~local-volume/v"
CONFIG = f"{POD}/volumes/kubernetes.io~configmap/v"
OLD = "..2029_01_01_00_00_00.1"
WRITTEN = f"{CONFIG}/{OLD}"
SUB_PATHS = f"{POD}/volume-subpaths"
SUB_PATH = f"{SUB_PATHS}/v/main/0"
UNFINISHED = ".pods.json.0123456789ab"
ROTATED = f"{LOG}.20290101-120000"


@dataclass(frozen=True)
class Place:
    """One thing that the agent does, what is there for it to work on, and where something else is mounted."""

    name: str
    act: Callable[[Path, Threads], object]
    makes: tuple[str, ...]
    """Files, and directories with a slash at the end."""
    at: tuple[str, ...]
    """Names of files are bound as files."""


def remove_pod(base, threads):
    made = PodFiles(root=base, logs=base / "logs", cluster_domain="", threads=threads)
    return made.remove_pod(UID)


def write_hosts(base, threads):
    made = PodFiles(root=base, logs=base / "logs", cluster_domain="", threads=threads)
    pod = make_pod(uid=UID)
    return made.prepare_container(pod, pod.spec.containers[0], pod_ips=("10.0.0.1",))


def remove_orphan(base, threads):
    return PodDirectories(layout=Layout(base), threads=threads).remove(UID)


def tear_down_scratch(base, _threads):
    ScratchDirectories(mounter=HostMounter()).tear_down(base / SCRATCH, base / MARKERS / "v/ready")


def set_up_scratch(base, _threads):
    ScratchDirectories(mounter=HostMounter()).set_up(Scratch(path=base / SCRATCH, marker=base / MARKERS / "v/ready"))


def update_config_map(base, _threads):
    """The second write removes what the first one has replaced."""
    payload = {"key": FileProjection(data=b"new", mode=0o644)}
    for now in (NOW, NOW + timedelta(minutes=1)):
        write_payload(base / CONFIG, payload, now=now, own=lambda: None, one_mount=True)


def tear_down_local(base, _threads):
    LocalDirectories(layout=Layout(base), binder=HostMounter()).tear_down(base / LOCAL)


def clean_sub_paths(base, threads):
    return BoundSubPaths(root=base, threads=threads).clean(UID)


def prepare_sub_path(base, threads):
    (base / "source/part").mkdir(parents=True, exist_ok=True)
    made = BoundSubPaths(root=base, threads=threads)
    return made.prepare(UID, "main", 0, volume="v", root=str(base / "source"), path="part")


def forget_ids(base, threads):
    return PodMappingFiles(root=base, threads=threads).remove(UID)


def log_files(base, threads):
    return LogFiles(logs=base / "logs", links=base / "links", threads=threads)


def rotate(base, _threads):
    list_rotated(str(base / LOG))
    tidy_rotated(str(base / LOG), max_files=2, now=NOW, is_stopped=lambda: False)
    restore_log(str(base / ROTATED), "0.log")


def compress(base, _threads):
    tidy_rotated(str(base / LOG), max_files=5, now=NOW, is_stopped=lambda: False)


def open_offline(base, threads):
    clock = ManualClock()
    return open_store(base / "offline", node_name="n", make_sealer=lambda _: None, threads=threads, clock=clock)


def retain_nothing(base, threads):
    kept = ObjectFiles(directory=base / "offline/configmaps", form=lambda _: None, threads=threads, clock=ManualClock())
    return kept.retain(lambda _: False)


class Words:
    def encode(self, value):
        return value.encode()

    def decode(self, data):
        raise CheckpointDamaged(f"{len(data)} bytes are too many")


def checkpoint(base, threads):
    return CheckpointFile(path=base / "state/c.json", form=Words(), threads=threads, clock=ManualClock())


class NoLoops:
    def find(self, _device):
        return None


CSI = CsiLayout(Path("/"))
TARGET = f"{POD}/volumes/kubernetes.io~csi/v"
STAGED = str(CSI.staged("driver", "handle").path)[1:]
DEVICE_MAP = str(CSI.block_map("v").path)[1:]
DEVICES = f"{POD}/volumeDevices/kubernetes.io~csi"


def write_volume_data(base, _threads):
    directories.write_data(CsiLayout(base).target(UID, "v").parent, VolumeData(driver_name="driver"))


def device_files(base):
    mapping = BlockMapping(uid=UID, map_path=str(base / DEVICE_MAP), link=base / DEVICES / "v")
    return DeviceFiles(root=base, loops=NoLoops()), mapping


def unmap(base, _threads):
    made, mapping = device_files(base)
    made.unlock(mapping)
    made.unbind(mapping)
    made.unlink(mapping)


def announce(base, _threads):
    made, mapping = device_files(base)
    made.announce(mapping)


def remove_map(base, _threads):
    made, mapping = device_files(base)
    made.remove_map(mapping.map_path)


PLACES = (
    Place(
        "a pod's directories",
        remove_pod,
        (f"{POD}/containers/main/1234", f"{POD}/etc-hosts", f"{SCRATCH}/sub/file", LOG),
        (
            POD, f"{POD}/containers", f"{POD}/containers/main", f"{POD}/containers/main/1234", f"{POD}/etc-hosts",
            f"{POD}/volumes", SCRATCH, f"{SCRATCH}/sub", f"{SCRATCH}/sub/file", LOGS, f"{LOGS}/main", LOG,
        ),
    ),
    Place("the hosts file", write_hosts, (f"{POD}/etc-hosts",), (POD, f"{POD}/etc-hosts")),
    Place(
        "an orphaned pod",
        remove_orphan,
        (f"{SCRATCH}/sub/below/", f"{SUB_PATH}/", f"{SUB_PATHS}/v/main/1", f"{POD}/etc-hosts", f"{MARKERS}/v/ready"),
        (
            POD, f"{POD}/volumes", SCRATCHES, SCRATCH, f"{SCRATCH}/sub", f"{SCRATCH}/sub/below",
            SUB_PATHS, f"{SUB_PATHS}/v", f"{SUB_PATHS}/v/main", SUB_PATH,
            f"{SUB_PATHS}/v/main/1", f"{POD}/plugins", MARKERS, f"{MARKERS}/v", f"{MARKERS}/v/ready",
            f"{POD}/etc-hosts",
        ),
    ),
    Place(
        "the end of an emptyDir",
        tear_down_scratch,
        (f"{SCRATCH}/sub/file", f"{MARKERS}/v/ready"),
        (
            POD, f"{POD}/volumes", SCRATCHES, SCRATCH, f"{SCRATCH}/sub", f"{SCRATCH}/sub/file",
            f"{POD}/plugins", MARKERS, f"{MARKERS}/v", f"{MARKERS}/v/ready",
        ),
    ),
    Place(
        "an emptyDir that has lost its directory",
        set_up_scratch,
        (f"{POD}/volumes/", f"{MARKERS}/v/ready"),
        (POD, f"{POD}/plugins", MARKERS, f"{MARKERS}/v"),
    ),
    Place(
        "an update of a configMap",
        update_config_map,
        (f"{WRITTEN}/old", f"{WRITTEN}/below/file", f"{CONFIG}/..data_tmp"),
        (
            POD, f"{POD}/volumes", CONFIG, WRITTEN, f"{WRITTEN}/below",
            f"{WRITTEN}/old", f"{CONFIG}/..data_tmp",
        ),
    ),
    Place("the end of a local volume", tear_down_local, (f"{LOCAL}/",), (POD, f"{POD}/volumes", LOCAL)),
    Place(
        "the end of sub-paths",
        clean_sub_paths,
        (f"{SUB_PATH}/", f"{SUB_PATHS}/v/main/1"),
        (
            POD, SUB_PATHS, f"{SUB_PATHS}/v", f"{SUB_PATHS}/v/main", SUB_PATH,
            f"{SUB_PATHS}/v/main/1",
        ),
    ),
    Place("a sub-path that was a file", prepare_sub_path, (SUB_PATH,), (SUB_PATH,)),
    Place("the ids of a pod", forget_ids, (f"{POD}/userns",), (POD, f"{POD}/userns")),
    Place(
        "the log of a container",
        lambda base, threads: log_files(base, threads).remove_log(str(base / LOG)),
        (LOG, ROTATED),
        (LOGS, f"{LOGS}/main", LOG, ROTATED),
    ),
    Place(
        "something at the path of a new log",
        lambda base, threads: log_files(base, threads).make_way(str(base / LOG)),
        (f"{LOG}/below/file",),
        (LOGS, f"{LOGS}/main", LOG, f"{LOG}/below", f"{LOG}/below/file"),
    ),
    Place(
        "a directory of logs",
        lambda base, threads: log_files(base, threads).remove_directory(LogDirectory(UID, Path(LOGS).name)),
        (LOG,),
        (LOGS, f"{LOGS}/main", LOG),
    ),
    Place(
        "a link to a log",
        lambda base, threads: log_files(base, threads).unlink("a.log"),
        ("links/a.log",),
        ("links/a.log",),
    ),
    Place(
        "a rotated log",
        rotate,
        (LOG, ROTATED, f"{LOG}.20290101-120000.tmp", f"{LOG}.20290101-110000.gz"),
        (LOGS, f"{LOGS}/main", ROTATED, f"{LOG}.20290101-120000.tmp", f"{LOG}.20290101-110000.gz"),
    ),
    Place(
        "a log to be compressed",
        compress,
        (LOG, ROTATED),
        (LOGS, f"{LOGS}/main", ROTATED),
    ),
    Place(
        "unfinished files of what is kept for outages",
        open_offline,
        (f"offline/{UNFINISHED}", f"offline/configmaps/{UNFINISHED}", f"offline/secrets/{UNFINISHED}",
         f"offline/tokens/{UNFINISHED}"),
        (
            f"offline/{UNFINISHED}", "offline/configmaps", f"offline/configmaps/{UNFINISHED}", "offline/secrets",
            "offline/tokens",
        ),
    ),
    Place(
        "objects that no pod has any more",
        retain_nothing,
        ("offline/configmaps/a.json",),
        ("offline/configmaps", "offline/configmaps/a.json"),
    ),
    Place(
        "a checkpoint",
        lambda base, threads: checkpoint(base, threads).save("new"),
        ("state/c.json",),
        ("state/c.json",),
    ),
    Place(
        "a damaged checkpoint",
        lambda base, threads: checkpoint(base, threads).read(),
        ("state/c.json",),
        ("state/c.json",),
    ),
    Place(
        "a damaged journal",
        lambda base, _: set_aside(base / "state/journal.db", stamp="x"),
        ("state/journal.db", "state/journal.db-wal"),
        ("state/journal.db", "state/journal.db-wal"),
    ),
    Place("one file", lambda base, _: files.remove_file(base / "a/file"), ("a/file",), ("a/file",)),
    Place("a replaced file", lambda base, _: files.write_atomic(base / "a/file", b"new"), ("a/file",), ("a/file",)),
    Place(
        "a tree",
        lambda base, _: files.remove_tree(base / "a/tree"),
        ("a/tree/b/c/file", "a/tree/d"),
        ("a/tree", "a/tree/b", "a/tree/b/c", "a/tree/b/c/file", "a/tree/d"),
    ),
    Place(
        "a tree deeper than is entered",
        lambda base, _: files.remove_tree(base / "a/tree"),
        (f"a/tree/{'d/' * 70}file",),
        (f"a/tree/{'d/' * 63}d", f"a/tree/{'d/' * 64}d", f"a/tree/{'d/' * 69}d"),
    ),
    Place(
        "the content of a directory",
        lambda base, _: files.remove_content(base / "a/tree"),
        ("a/tree/b/file", "a/tree/d"),
        ("a/tree", "a/tree/b", "a/tree/b/file", "a/tree/d"),
    ),
    Place(
        "a mount point",
        lambda base, _: mounts.cleanup_mount_point(base / "a/point"),
        ("a/point/",),
        ("a/point",),
    ),
    Place(
        "a mount point that is a file",
        lambda base, _: mounts.cleanup_mount_point(base / "a/point"),
        ("a/point",),
        ("a/point",),
    ),
    Place(
        "the end of a CSI volume",
        lambda base, _: directories.remove_mounted(CsiLayout(base).target(UID, "v")),
        (f"{TARGET}/mount/", f"{TARGET}/vol_data.json"),
        (POD, f"{POD}/volumes", str(Path(TARGET).parent), TARGET, f"{TARGET}/mount", f"{TARGET}/vol_data.json"),
    ),
    Place(
        "the stage of a CSI volume",
        lambda base, _: directories.remove_mounted(CsiLayout(base).staging("driver", "handle")),
        (f"{STAGED}/globalmount/", f"{STAGED}/vol_data.json"),
        (
            "plugins/kubernetes.io", "plugins/kubernetes.io/csi", "plugins/kubernetes.io/csi/driver", STAGED,
            f"{STAGED}/globalmount", f"{STAGED}/vol_data.json",
        ),
    ),
    Place(
        "a new vol_data.json",
        write_volume_data,
        (f"{TARGET}/vol_data.json", f"{TARGET}/vol_data.json.new"),
        (POD, TARGET, f"{TARGET}/vol_data.json", f"{TARGET}/vol_data.json.new"),
    ),
    Place(
        "the device of a pod",
        unmap,
        (f"{DEVICE_MAP}/{UID}", f"{DEVICES}/v"),
        (
            "plugins/kubernetes.io/csi", "plugins/kubernetes.io/csi/volumeDevices", DEVICE_MAP, f"{DEVICE_MAP}/{UID}",
            POD, f"{POD}/volumeDevices", DEVICES, f"{DEVICES}/v",
        ),
    ),
    Place(
        "a new device of a pod",
        announce,
        (f"{DEVICES}/v", f"{DEVICES}/.new-link"),
        (POD, f"{POD}/volumeDevices", DEVICES, f"{DEVICES}/v", f"{DEVICES}/.new-link"),
    ),
    Place(
        "the map of a block volume",
        remove_map,
        (f"{DEVICE_MAP}/{UID}",),
        ("plugins/kubernetes.io/csi/volumeDevices", DEVICE_MAP, f"{DEVICE_MAP}/{UID}"),
    ),
    Place(
        "the cgroups of a pod",
        lambda base, _: tree.remove_tree(base / "cgroup/pod"),
        ("cgroup/pod/a/b/", "cgroup/pod/c/"),
        ("cgroup/pod", "cgroup/pod/a", "cgroup/pod/a/b", "cgroup/pod/c"),
    ),
    Place(
        "the log of a daemon",
        lambda base, _: trim_log(base / "state/agent.log", limit=1),
        ("state/agent.log", "state/agent.log.1"),
        ("state/agent.log", "state/agent.log.1"),
    ),
    Place(
        "the state of a node",
        lambda base, _: purge(find_node(base / "state")),
        ("state/containerd/content/blob", "state/kubelet/pods/u/file", "state/node.json"),
        ("state/containerd", "state/containerd/content", "state/kubelet/pods", "state/kubelet/pods/u/file",
         "state/node.json"),
    ),
)  # fmt: skip
CASES = [pytest.param(place, at, id=f"{place.name} at {at[-60:]}") for place in PLACES for at in place.at]


@pytest.fixture
def base(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root: run the tests as root")
    with private_base(tmp_path) as base:
        yield base


@pytest.fixture
def threads():
    made = Threads(limit=1)
    yield made
    made.close()


def make(base, place):
    for path in place.makes:
        if path.endswith("/"):
            (base / path).mkdir(parents=True, exist_ok=True)
        else:
            (base / path).parent.mkdir(parents=True, exist_ok=True)
            (base / path).write_bytes(b"{}\nlonger than nothing\n")
    if place.act is update_config_map:
        (base / CONFIG / "..data").symlink_to(OLD)
        (base / CONFIG / "old").symlink_to("..data/old")


def act(place, base, threads):
    """Return what was said by an error."""
    try:
        result = place.act(base, threads)
        if asyncio.iscoroutine(result):
            asyncio.run(result)
    except (KletError, OSError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", MountKind)
@pytest.mark.parametrize(("place", "at"), CASES)
def test_nothing_of_a_mount_is_lost(place, at, kind, base, threads, tmp_path, caplog):
    make(base, place)
    (tmp_path / "base/home").mkdir()
    theirs = MarkedMount(home=base / "home", place=base / at, kind=kind)
    theirs.mount()
    with caplog.at_level(logging.DEBUG):
        error = act(place, base, threads)
    assert theirs.lost() == []
    if theirs.is_mounted:
        said = [error, *(str(record.__dict__.get("error", "")) for record in caplog.records)]
        assert any(is_named(base / at, text) for text in said), said


def is_named(path, text):
    """Return whether a text names the place, or what is above or below it."""
    base = next(each for each in path.parents if each.name == "base")
    return any(str(each) in text for each in (path, *path.parents) if each != base and base in each.parents)


RACES = (
    ("a pod's directories", f"{POD}/containers/main"),
    ("a pod's directories", f"{LOGS}/main"),
    ("the hosts file", f"{POD}/etc-hosts"),
    ("an orphaned pod", SCRATCH),
    ("an orphaned pod", f"{SUB_PATHS}/v/main"),
    ("the end of an emptyDir", SCRATCH),
    ("the end of an emptyDir", f"{SCRATCH}/sub"),
    ("an update of a configMap", WRITTEN),
    ("the end of sub-paths", SUB_PATH),
    ("the ids of a pod", POD),
    ("the log of a container", f"{LOGS}/main"),
    ("a rotated log", f"{LOGS}/main"),
    ("objects that no pod has any more", "offline/configmaps"),
    ("a tree", "a/tree/b"),
    ("the content of a directory", "a/tree"),
    ("the log of a daemon", "state/agent.log"),
    ("the cgroups of a pod", "cgroup/pod/a"),
)


@pytest.mark.deadline(120)
@pytest.mark.parametrize(("place", "at"), [each for each in CASES if (each.values[0].name, each.values[1]) in RACES])
def test_nothing_is_lost_of_what_is_mounted_meanwhile(place, at, base, tmp_path):
    """The mount comes before each call of the system, one after the other."""
    for number in range(500):
        (base / "life").mkdir()
        life = base / "life"
        make(life, place)
        (life / "home").mkdir()
        theirs = MarkedMount(home=life / "home", place=life / at, kind=MountKind.SAME)
        threads = Threads(limit=1)
        try:
            with before_call(number, functools.partial(mount_if_there, theirs)) as has_acted:
                act(place, life, threads)
        finally:
            threads.close()
        assert theirs.lost() == [], f"mounted before call {number}"
        while mounts.unmount(theirs.place):
            pass
        files.remove_tree(life)
        if not has_acted():
            assert number > 1
            return
    pytest.fail("the removal has no end")


def mount_if_there(theirs):
    with suppress(KletError):  # it is gone already
        theirs.mount()


@pytest.mark.parametrize("kind", MountKind)
def test_a_scratch_directory_leaves_what_was_mounted_there(base, kind):
    (base / "home").mkdir()
    made = []

    def use():
        with files.scratch_directory(base, prefix="x") as scratch:
            (scratch / "theirs/below").mkdir(parents=True)
            made.append(MarkedMount(home=base / "home", place=scratch / "theirs", kind=kind))
            made[0].mount()

    with pytest.raises(MountInTree, match="theirs: it is a mount point"):
        use()
    (theirs,) = made
    assert theirs.lost() == []
    assert theirs.is_mounted


def test_every_place_stands_for_some_code():
    named = {name for removal in REMOVALS.values() for name in removal.tested}
    assert named == {place.name for place in PLACES} | {"a scratch directory"}
