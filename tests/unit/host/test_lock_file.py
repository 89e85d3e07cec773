"""A file that one process at a time holds."""

import multiprocessing
import os
import signal

import pytest

from klet.host.errors import FileError
from klet.host.lock_file import LockHeld, hold_file


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
