"""The containerd of the tests: it survives being killed, and nothing of it stays."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace

import pytest

from klet.cri.client import connect
from klet.cri.errors import CriError, InvalidRuntime, Unavailable
from klet.cri.events import ContainerdEvents
from klet.host.containerd_probe import find_snapshotter
from klet.testing.containerd import REQUEST_TIMEOUT
from klet.testing.cri_configs import build_container_config, build_sandbox_config
from klet.testing.leftovers import remove_abandoned
from klet.wire import cri_v1_pb2 as pb

pytestmark = [pytest.mark.root, pytest.mark.containerd]


async def run_pod(cri, daemon, directory):
    config = build_sandbox_config(name="pod", log_directory=directory, cgroup_parent=daemon.cgroup_parent)
    sandbox = (await cri.run_pod_sandbox(pb.RunPodSandboxRequest(config=config))).pod_sandbox_id
    request = pb.CreateContainerRequest(
        pod_sandbox_id=sandbox,
        sandbox_config=config,
        config=build_container_config(name="main", command=("sleep", "1000")),
    )
    container = (await cri.create_container(request)).container_id
    await cri.start_container(pb.StartContainerRequest(container_id=container))
    return sandbox


KILLED_RUN = """
import asyncio, os, signal, sys
from pathlib import Path
from klet.cri.client import connect
from klet.testing.containerd import REQUEST_TIMEOUT, run_containerd
from klet.testing.cri_configs import build_sandbox_config
from klet.wire import cri_v1_pb2 as pb

async def main(directory):
    async with run_containerd(directory) as daemon:
        async with connect(runtime_endpoint=daemon.endpoint, timeout=REQUEST_TIMEOUT) as cri:
            config = build_sandbox_config(name="p", log_directory=directory, cgroup_parent=daemon.cgroup_parent)
            await cri.run_pod_sandbox(pb.RunPodSandboxRequest(config=config))
            print(daemon.bridge, daemon.cgroup_parent, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(Path(sys.argv[1])))
"""


def traces(daemon):
    """Everything on the machine that still speaks of the daemon."""
    found = [path for path in (daemon.directory, Path("/sys/class/net", daemon.bridge)) if path.exists()]
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(daemon.directory) in line]
    found += list(Path("/sys/fs/cgroup").glob(f"*{daemon.cgroup_parent}"))
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(daemon.directory) in command:
            found.append(command)
    return found


async def test_a_stop_leaves_nothing(own_containerd, tmp_path):
    async with own_containerd("stop") as daemon:
        async with connect(runtime_endpoint=daemon.endpoint, timeout=REQUEST_TIMEOUT) as cri:
            await run_pod(cri, daemon, tmp_path)
        assert traces(daemon)
    assert traces(daemon) == []


async def test_a_killed_daemon_leaves_nothing_either(own_containerd, tmp_path):
    async with own_containerd("kill") as daemon:
        async with connect(runtime_endpoint=daemon.endpoint, timeout=REQUEST_TIMEOUT) as cri:
            await run_pod(cri, daemon, tmp_path)
        daemon.process.kill()
        daemon.process.wait()
    assert traces(daemon) == []


async def test_what_a_killed_run_left_is_removed_by_the_next(containerd_base, tmp_path):
    directory = containerd_base / f"{os.getpid()}-killed"
    run = subprocess.run(  # noqa: ASYNC221 (nothing else goes on in this test)
        [sys.executable, "-c", KILLED_RUN, str(directory)], stdout=subprocess.PIPE, check=False
    )
    assert run.returncode == -signal.SIGKILL
    bridge, cgroup = run.stdout.decode().split()
    left = SimpleNamespace(directory=directory, bridge=bridge, cgroup_parent=cgroup)
    assert traces(left)
    remove_abandoned(containerd_base)
    assert traces(left) == []


async def test_an_event_stream_says_when_the_daemon_is_gone(own_containerd, tmp_path):
    async with (
        own_containerd("events") as daemon,
        connect(runtime_endpoint=daemon.endpoint, timeout=REQUEST_TIMEOUT) as cri,
        aclosing(ContainerdEvents(connection=cri.runtime).subscribe()) as events,
    ):
        async with asyncio.TaskGroup() as group:
            first = group.create_task(anext(events))
            sandbox = await run_pod(cri, daemon, tmp_path)
        assert first.result().container_id == sandbox
        daemon.process.kill()
        with pytest.raises(Unavailable):
            async for _ in events:
                pass
        with pytest.raises(Unavailable, match=r"^rpc error: code = Unavailable desc = "):
            await cri.version(pb.VersionRequest())


def test_the_directories_of_living_runs_are_left_alone(tmp_path):
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "klet-containerd.json").write_text(
        f'{{"owner": {os.getpid()}, "owner_started": {start_time()}, "bridge": "klt-none", "cgroup": "klet-none"}}'
    )
    remove_abandoned(tmp_path)
    assert directory.exists()


def test_the_directories_of_dead_runs_are_removed(tmp_path):
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "klet-containerd.json").write_text(
        f'{{"owner": {os.getpid()}, "owner_started": 1, "bridge": "klt-none", "cgroup": "klet-none"}}'
    )
    remove_abandoned(tmp_path)
    assert not directory.exists()


async def test_a_client_comes_back_with_the_daemon(own_containerd):
    async with (
        own_containerd("back") as daemon,
        connect(runtime_endpoint=daemon.endpoint, timeout=REQUEST_TIMEOUT) as cri,
    ):
        os.kill(daemon.process.pid, signal.SIGSTOP)
        with pytest.raises(CriError):
            async with connect(runtime_endpoint=daemon.endpoint, timeout=REQUEST_TIMEOUT / 1000):
                pass
        os.kill(daemon.process.pid, signal.SIGCONT)
        assert (await cri.version(pb.VersionRequest())).runtime_name == "containerd"


async def test_a_socket_that_nobody_serves(tmp_path):
    endpoint = f"unix://{tmp_path}/none.sock"
    with pytest.raises(InvalidRuntime, match=f'^validate CRI v1 runtime API for endpoint "{endpoint}": rpc error: '):
        async with connect(runtime_endpoint=endpoint, timeout=REQUEST_TIMEOUT):
            pass


def test_a_snapshotter_is_always_found(tmp_path):
    assert find_snapshotter(tmp_path) in {"overlayfs", "native"}
    assert list(tmp_path.iterdir()) == []


def start_time():
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
