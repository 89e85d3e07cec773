"""The root directory is made, and is on a shared mount."""

import multiprocessing
import os
import resource
import signal
import stat

import pytest

from klet.host.errors import FileError, HostError, MountError
from klet.host.mountinfo import MountEntry
from klet.host.mounts import Propagation
from klet.host.root_directory import (
    LockHeld,
    Sharing,
    decide_sharing,
    hold_file,
    hold_root,
    label_plugin_directories,
    make_log_directories,
    make_root,
)


def entry(number, point, *propagation):
    return MountEntry(number, 1, "8:1", "/", point, ("rw",), propagation, "ext4", "/dev/sda1", ("rw",))


PRIVATE, SHARED = entry(1, "/"), entry(1, "/", "shared:1")


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        pytest.param([SHARED], Sharing.NOTHING, id="the whole machine is shared, as systemd has it"),
        pytest.param([PRIVATE], Sharing.BIND, id="nothing is shared"),
        pytest.param([entry(1, "/", "master:1")], Sharing.BIND, id="a slave is not shared"),
        pytest.param([SHARED, entry(2, "/var/lib")], Sharing.BIND, id="a disk of its own that is not shared"),
        pytest.param([PRIVATE, entry(2, "/var/lib", "shared:2")], Sharing.NOTHING, id="a disk of its own that is"),
        pytest.param([PRIVATE, entry(2, "/var/lib/kubelet", "shared:2")], Sharing.NOTHING, id="a previous run did it"),
        pytest.param([PRIVATE, entry(2, "/var/lib/kubelet")], Sharing.BIND, id="a mount at its place that is private"),
        pytest.param([PRIVATE, entry(2, "/var/lib/kubelet2", "shared:2")], Sharing.BIND, id="a neighbour is shared"),
        pytest.param([PRIVATE, entry(2, "/var/lib/kubelet/pods/u/v")], Sharing.LATER, id="volumes are mounted already"),
        pytest.param([SHARED, entry(2, "/var/lib/kubelet/pods/u/v")], Sharing.NOTHING, id="volumes on a shared mount"),
        pytest.param([], Sharing.BIND, id="no mounts to be seen"),
    ],
)
def test_what_there_is_to_do(table, expected):
    assert decide_sharing(table, "/var/lib/kubelet") is expected


class NotedCalls:
    """Mounts that are only noted."""

    def __init__(self, *table, refuses=""):
        self.table = table
        self.refuses = refuses
        self.calls = []

    def list_mounts(self):
        return self.table

    def bind(self, source, target):
        self._note("bind", source, target)

    def set_propagation(self, target, propagation, *, recursive):
        assert propagation is Propagation.SHARED
        assert recursive
        self._note("share", target)

    def unmount(self, target):
        self._note("unmount", target)
        return True

    def _note(self, call, *paths):
        self.calls.append((call, *paths))
        if call == self.refuses:
            raise MountError(f"cannot mount {paths[0]} at {paths[-1]}: Operation not permitted", errno=1)


def test_it_is_made_and_closed_to_others(tmp_path):
    root = tmp_path / "lib" / "kubelet"
    calls = NotedCalls(SHARED)
    make_root(root, calls)
    make_root(root, calls)
    assert (root / "pods").is_dir()
    assert stat.S_IMODE(root.stat().st_mode) == 0o750
    assert calls.calls == []


def test_what_every_part_expects_is_made_in_it(tmp_path):
    (tmp_path / "plugins").mkdir(mode=0o711)
    make_root(tmp_path, NotedCalls(SHARED))
    made = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
    assert made == {
        "pods": 0o750,
        "plugins": 0o711,
        "plugins_registry": 0o750,
        "pod-resources": 0o750,
        "checkpoints": 0o700,
    }


def test_plugins_are_labelled_where_the_file_system_has_labels(tmp_path, caplog):
    make_root(tmp_path / "root", NotedCalls(SHARED))
    label_plugin_directories(tmp_path / "root")
    for name in ("plugins", "plugins_registry"):
        labelled = "security.selinux" in os.listxattr(tmp_path / "root" / name)
        # Not every file system has labels: then it is logged.
        assert labelled or f"{tmp_path}/root/{name}" in [record.path for record in caplog.records]


def test_log_directories_are_made_and_one_behind_a_link_is_used(tmp_path):
    (tmp_path / "disk").mkdir(mode=0o700)
    (tmp_path / "containers").symlink_to("disk")
    logs, links = tmp_path / "log" / "pods", tmp_path / "containers"
    make_log_directories(logs, links)
    assert stat.S_IMODE(logs.stat().st_mode) == 0o750
    assert stat.S_IMODE(links.stat().st_mode) == 0o700


def test_a_place_for_logs_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=r"cannot make .*file/pods: Not a directory"):
        make_log_directories(tmp_path / "file" / "pods", tmp_path / "containers")


def test_it_is_bound_on_itself_by_its_real_name(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    calls = NotedCalls(PRIVATE)
    make_root(tmp_path / "link", calls)
    place = tmp_path / "disk"
    assert calls.calls == [("bind", place, place), ("share", place)]
    assert (place / "pods").is_dir()


def test_volumes_of_running_pods_are_not_hidden(tmp_path, caplog):
    calls = NotedCalls(PRIVATE, entry(2, f"{tmp_path}/pods/u/volumes/v"))
    make_root(tmp_path, calls)
    assert calls.calls == []
    assert "not on a shared mount" in caplog.text


@pytest.mark.parametrize(
    ("refuses", "expected"),
    [
        pytest.param("bind", ["bind"], id="no right to mount"),
        pytest.param("share", ["bind", "share", "unmount"], id="what was begun is undone"),
    ],
)
def test_a_machine_that_refuses(tmp_path, refuses, expected):
    calls = NotedCalls(PRIVATE, refuses=refuses)
    with pytest.raises(HostError) as caught:
        make_root(tmp_path, calls)
    assert [call[0] for call in calls.calls] == expected
    assert str(caught.value).startswith(f"cannot make the root directory {tmp_path} (--root-dir) a shared mount: ")
    assert "Operation not permitted" in str(caught.value)
    assert str(caught.value).endswith("share the mount that holds it with `mount --make-rshared /`")


def test_a_place_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        HostError, match=r"^cannot make the root directory .*/file/root \(--root-dir\): Not a directory$"
    ):
        make_root(tmp_path / "file" / "root", NotedCalls(SHARED))


def test_two_agents_do_not_share_it(tmp_path):
    used = rf"the root directory {tmp_path} \(--root-dir\) is in use by .*\(pid {os.getpid()}\); stop that"
    with hold_root(tmp_path), pytest.raises(HostError, match=used), hold_root(tmp_path):
        pass
    with hold_root(tmp_path):
        pass


def test_it_is_free_again_afterwards(tmp_path):
    for _ in range(2):
        with hold_file(tmp_path / "lock"):
            assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_who_holds_it_is_named(tmp_path):
    with hold_file(tmp_path / "lock"), pytest.raises(LockHeld) as caught, hold_file(tmp_path / "lock"):
        pass
    assert caught.value.holder.endswith(f"(pid {os.getpid()})")


def test_a_holder_that_left_no_name_is_there_all_the_same(tmp_path):
    with hold_file(tmp_path / "lock"):
        (tmp_path / "lock").write_text("nonsense")
        with pytest.raises(LockHeld, match="another process"), hold_file(tmp_path / "lock"):
            pass


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileError, match="cannot lock"), hold_file(tmp_path / "lock"):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_killed_process_holds_nothing(tmp_path):
    spawn = multiprocessing.get_context("fork")
    ready = spawn.Event()
    holder = spawn.Process(target=_hold, args=(tmp_path / "lock", ready))
    holder.start()
    assert ready.wait(30)
    with pytest.raises(LockHeld), hold_file(tmp_path / "lock"):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    with hold_file(tmp_path / "lock"):
        pass


def _hold(path, ready):
    with hold_file(path):
        ready.set()
        signal.pause()


def test_a_disk_that_takes_nothing_more_does_not_keep_the_agent_from_its_lock(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with hold_file(tmp_path / "lock"), pytest.raises(LockHeld), hold_file(tmp_path / "lock"):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "lock").read_bytes() == b""
