"""`klet run` as a process: its lock file, its two log streams, and how it ends. Others hold the lock, so it waits."""

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from asyncinotify import Inotify, Mask

DEADLINE = 60
CONFIG = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "failCgroupV1": False,
    "failSwapOn": False,
    "authentication": {"webhook": {"enabled": False}, "anonymous": {"enabled": True}},
    "authorization": {"mode": "AlwaysAllow"},
    "address": "127.0.0.1",
    "healthzPort": 0,
    "imagePullCredentialsVerificationPolicy": "NeverVerify",
    "featureGates": {"LoggingAlphaOptions": True},
    "streamingConnectionIdleTimeout": "5h",
}
WARNING = "streamingConnectionIdleTimeout (--streaming-connection-idle-timeout) has no effect yet"
CRASH = """
import logging
from klet.agent_log.start import LogSettings, start_logging
start_logging(LogSettings(is_split=True, info_buffer=1 << 20, flush_seconds=3600))
logging.getLogger("klet.test").info("Kept back")
logging.getLogger("klet.test").error("At once")
raise RuntimeError("a bug")
"""

UNREAD = """
import logging
from klet.agent_log.start import LogSettings, start_logging
start_logging(LogSettings())
for number in range(20_000):
    logging.getLogger("klet.test").info("Line", extra={"number": number})
print("not held up", flush=True)
"""


@pytest.fixture
def lock(tmp_path):
    """A file that somebody holds until `lock.close()`."""
    with (tmp_path / "lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


@pytest.fixture
def taken():
    """A port that somebody has, so that an agent with the lock ends at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def start(tmp_path, taken):
    """Start an agent that waits for the lock."""

    @contextmanager
    def start(*arguments, **logging):
        config = tmp_path / "config.yaml"
        config.write_text(json.dumps({**CONFIG, "port": taken, "logging": logging}))
        command = [sys.executable, "-P", "-m", "klet", "run", f"--config={config}", f"--root-dir={tmp_path / 'root'}"]
        command += [f"--lock-file={tmp_path / 'lock'}", "--klet-leave-kernel-tunables", *arguments]
        with Inotify(sync_timeout=DEADLINE) as notifier:
            notifier.add_watch(tmp_path / "lock", Mask.OPEN)
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                assert notifier.sync_get() is not None
                yield process
            finally:
                process.kill()
                process.communicate()

    return start


def end(process):
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=DEADLINE)
    return process.returncode, stdout, stderr


def test_a_lock_is_waited_for_before_anything_is_opened(start, lock, tmp_path):
    with start() as process:
        assert process.poll() is None
        lock.close()
        stdout, stderr = process.communicate(timeout=DEADLINE)
    # With the lock it goes on, to a port that is taken.
    assert process.returncode == 1
    assert "Acquiring file lock" in stderr
    assert "cannot listen on" in stderr.splitlines()[-1]
    assert stdout == ""
    assert not (tmp_path / "root").exists()


def test_a_signal_ends_the_wait_without_an_error(start, lock):
    with start() as process:
        code, stdout, stderr = end(process)
    assert (code, stdout) == (0, "")
    assert "Stopping before the agent was up" in stderr


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        pytest.param(lambda path: path.mkdir(), "is a directory", id="a directory"),
        pytest.param(lambda path: path.symlink_to("/etc/hostname"), "it is a symbolic link", id="a link"),
    ],
)
def test_what_cannot_be_locked_ends_the_agent(tmp_path, taken, prepare, reason):
    prepare(tmp_path / "bad")
    code, stderr = run_to_end(tmp_path, taken, f"--lock-file={tmp_path / 'bad'}")
    assert code == 1
    assert reason in stderr.splitlines()[-1]
    assert "unable to acquire file lock on" in stderr.splitlines()[-1]


def test_contention_needs_a_lock_file(tmp_path, taken):
    code, stderr = run_to_end(tmp_path, taken, "--exit-on-lock-contention")
    assert code == 1
    assert stderr.startswith(
        "klet: failed to run Kubelet: cannot exit on lock file contention: no lock file specified, path: "
    )


def test_lines_are_there_at_once_on_stderr_alone(start, lock):
    with start() as process:
        while "Acquiring file lock" not in process.stderr.readline():
            pass
        process.kill()
        assert process.stdout.read() == ""


@pytest.mark.parametrize("form", ["text", "json"])
def test_information_goes_to_stdout_and_the_rest_to_stderr(start, lock, form):
    with start(format=form, options={form: {"splitStream": True}}) as process:
        while "Acquiring file lock" not in process.stdout.readline():
            pass
        _, stdout, stderr = end(process)
    assert "Stopping before the agent was up" in stdout
    assert "Stopping" not in stderr
    # As upstream: a warning is an `I` line for its JSON logger, and a `W` line for klog.
    assert (WARNING in stderr) is (form == "text")


def test_options_of_the_other_format_do_not_act(start, lock):
    with start(format="text", options={"json": {"splitStream": True}}) as process:
        _, stdout, _ = end(process)
    assert stdout == ""


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_is_kept_back_comes_before_the_end(start, lock, form):
    options = {form: {"splitStream": True, "infoBufferSize": "1Mi"}}
    with start(format=form, flushFrequency="1h", options=options) as process:
        before = os.read(process.stdout.fileno(), 1 << 16) if select.select([process.stdout], [], [], 0)[0] else b""
        assert b"Acquiring" not in before
        code, stdout, _ = end(process)
    assert code == 0
    assert "Acquiring file lock" in stdout
    assert "Stopping before the agent was up" in stdout


def test_what_is_kept_back_comes_with_the_next_flush(start, lock):
    options = {"text": {"splitStream": True, "infoBufferSize": "1Mi"}}
    with start("--log-flush-frequency=20ms", format="text", options=options) as process:
        while "Acquiring file lock" not in process.stdout.readline():
            pass
        assert process.poll() is None


def test_a_full_buffer_is_written(start, lock):
    options = {"text": {"splitStream": True, "infoBufferSize": "1"}}
    with start(format="text", flushFrequency="1h", options=options) as process:
        while "Acquiring file lock" not in process.stdout.readline():
            pass
        assert process.poll() is None


def test_a_crash_loses_nothing():
    ended = subprocess.run(
        [sys.executable, "-P", "-c", CRASH], capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert ended.returncode == 1
    assert "Kept back" in ended.stdout
    assert "At once" in ended.stderr
    assert "RuntimeError: a bug" in ended.stderr


def test_a_log_that_nobody_reads_holds_up_nothing_and_is_whole_when_it_is_read():
    command = [sys.executable, "-P", "-c", UNREAD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "not held up\n"
        lines = process.stderr.read().splitlines()
    assert process.returncode == 0
    assert [int(line.rpartition("number=")[2]) for line in lines] == [*range(20_000)]


def test_one_module_is_more_verbose(start, lock):
    with start("--vmodule=run=5") as process:
        _, _, stderr = end(process)
    assert '"KubeletConfiguration" configuration=' in stderr
    with start("--vmodule=loop=5", "-v=4") as process:
        _, _, stderr = end(process)
    assert "KubeletConfiguration" not in stderr


def run_to_end(directory: Path, port: int, *arguments: str) -> tuple[int, str]:
    config = directory / "config.yaml"
    config.write_text(json.dumps({**CONFIG, "port": port}))
    command = [sys.executable, "-P", "-m", "klet", "run", f"--config={config}", f"--root-dir={directory / 'root'}"]
    command += ["--klet-leave-kernel-tunables", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    return ended.returncode, ended.stderr
