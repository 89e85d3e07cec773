import os

from klet.cli.node.processes import ProcessIdentity, identify, is_alive, read_pid_file, write_pid_file


def test_a_pid_file_names_one_process_only(tmp_path):
    path = tmp_path / "pid"
    own = identify(os.getpid())
    assert own is not None
    write_pid_file(path, own)
    assert read_pid_file(path) == own
    write_pid_file(path, ProcessIdentity(pid=own.pid, started=own.started - 1))
    assert read_pid_file(path) is None


def test_a_missing_or_damaged_file_names_no_process(tmp_path):
    path = tmp_path / "pid"
    assert read_pid_file(path) is None
    path.write_text("12")
    assert read_pid_file(path) is None
    assert not path.exists()


def test_nobody_has_pid_zero():
    assert identify(0) is None
    assert not is_alive(ProcessIdentity(pid=0, started=0))
