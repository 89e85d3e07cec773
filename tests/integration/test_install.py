"""`klet install` as a user runs it, on a real containerd. For systemd there is a stand-in that starts the units."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from klet.cli.node import links
from klet.cli.node.node import find_node
from klet.cli.node.teardown import CNI_RESULTS, kill_shims, leased_containers, recorded_containers
from klet.host.mounts import list_mounts, unmount_tree
from klet.testing.containerd import why_impossible
from klet.testing.fake_systemctl import FakeSystemctl

ROOT = Path(__file__).parents[2]
KLET = ROOT / "klet"
pytestmark = [
    pytest.mark.root,
    pytest.mark.containerd,
    pytest.mark.skipif(bool(why_impossible()), reason=why_impossible()),
]
TWO = """
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "klet.local/busybox:1", command: [sleep, "1000000"]}
"""
PODS = "---".join(TWO.replace("NAME", name) for name in ("one", "two"))


class Machine:
    """A machine with systemd, and a node in a directory of its own."""

    def __init__(self, directory):
        self.state = directory / "state"
        self.file = directory / "pods.yaml"
        self.file.write_text(PODS)
        self.systemd = FakeSystemctl(directory / "sd")
        self.node = find_node(self.state)
        stem = f"klet-{self.node.names.tag}"
        self.containerd, self.agent = f"{stem}-containerd.service", f"{stem}.service"
        self.environment = {
            **os.environ,
            "PATH": f"{self.systemd.programs}:{os.environ['PATH']}",
            "KLET_MACHINE_ROOT": str(self.systemd.root),
            "KLET_STATE_DIR": str(self.state),
        }

    def start(self, *words):
        return subprocess.Popen(
            words, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/"
        )

    def run(self, *words, expect=0):
        with self.start(*words) as process:
            output, errors = process.communicate(timeout=120)
        assert process.returncode == expect, f"{words} ended with {process.returncode}:\n{errors}\n{output}"
        return output, errors

    def klet(self, *words, **more):
        return self.run(str(KLET), *words, **more)

    def install(self, *words, **more):
        return json.loads(self.klet("install", "--no-install", "-o", "json", *words, **more)[0])

    def uninstall(self, *words, **more):
        return json.loads(self.klet("uninstall", "-o", "json", *words, **more)[0])

    def apply(self):
        self.klet("up", "--detach", str(self.file), "--timeout", "90s")

    def systemctl(self, *words):
        self.run("systemctl", *words)

    def pods(self):
        return {
            pod["metadata"]["name"].partition("-")[0]: pod
            for pod in json.loads(self.klet("ps", "-o", "json")[0])["items"]
        }

    def containers(self):
        return {name: pod["status"]["containerStatuses"][0]["containerID"] for name, pod in self.pods().items()}

    def pids(self):
        return self.systemd.main_pid(self.containerd), self.systemd.main_pid(self.agent)

    def left(self):
        """What is on the machine of the node, outside of its directories."""
        names = self.node.names
        mounts = [mount.mount_point for mount in list_mounts() if mount.mount_point.startswith(str(self.state))]
        return {
            "mounts": mounts,
            "cgroups": [str(path) for path in self.cgroups()],
            "links": [name for name in (names.bridge, *links.members(names.bridge)) if links.exists(name)],
            "results": recorded_containers(CNI_RESULTS, names.network),
            "processes": list(self.processes()),
            "units": [path.name for path in self.systemd.units.rglob("klet-*")],
        }

    def cgroups(self):
        """Those of the node: one in version 2, one for each controller in version 1."""
        name, top = self.node.names.cgroup.strip("/"), Path("/sys/fs/cgroup")
        return [path for path in (top / name, *top.glob(f"*/{name}")) if path.exists()]

    def processes(self):
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    said = (entry / "cmdline").read_text() + (entry / "cgroup").read_text()
                    if str(self.state) in said or self.node.names.cgroup in said:
                        yield int(entry.name)

    def cut_power(self, *, is_run_on_disk=False):
        """Leave what a machine has after its power failed and came back: the disk, and nothing else."""
        for pid in reversed(self.pids()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        asyncio.run(kill_shims(str(self.node.paths.containerd_socket)))
        for directory in self.cgroups():
            kill_cgroup(directory)
        unmount_tree(self.state, lazy=True)
        for link in (*links.members(self.node.names.bridge), self.node.names.bridge):
            links.delete(link)
        if is_run_on_disk:
            self.node.paths.boot.write_text("01234567-89ab-cdef-0123-456789abcdef")
        else:
            shutil.rmtree(self.node.paths.run)
        self.systemd.reboot()

    def boot(self):
        for unit in self.systemd.enabled():
            self.systemctl("start", unit)


def kill_cgroup(top):
    """End what is in a cgroup, and remove it."""
    deadline = time.monotonic() + 10
    while top.exists():
        assert time.monotonic() < deadline, f"{top} stays"
        for directory, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                for pid in (Path(directory) / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
                Path(directory).rmdir()
        time.sleep(0.01)  # for the kernel, which collects what has ended


@pytest.fixture
def machine(request):
    # Not pytest's directory: the paths of sockets are limited.
    directory = Path(f"/tmp/klet-in-{os.getpid()}-{abs(hash(request.node.name)) % 10000}")
    directory.mkdir()
    machine = Machine(directory)
    try:
        yield machine
    finally:
        machine.klet("uninstall", "--purge", "--force")
        machine.klet("down", "--purge")
        machine.systemd.stop_all()
        left = machine.left()
        shutil.rmtree(directory)
    assert {name: found for name, found in left.items() if found} == {}


def test_a_node_is_installed_used_restarted_and_uninstalled(machine):
    report = machine.install()
    assert (report["ready"], report["errors"], report["installed"]) == (True, [], True)
    assert [(unit["name"], unit["action"], unit["active"], unit["enabled"]) for unit in report["units"]] == [
        (machine.containerd, "started", "active", True),
        (machine.agent, "started", "active", True),
    ]
    assert machine.systemd.notified(machine.agent) == ["READY=1", "WATCHDOG=1"]
    assert machine.systemd.notified(machine.containerd) == ["READY=1"]
    assert machine.systemd.calls() == [
        "daemon-reload",
        f"enable {machine.containerd} {machine.agent}",
        f"start {machine.containerd}",
        f"start {machine.agent}",
    ]
    machine.apply()
    containers, pids = machine.containers(), machine.pids()
    assert containers.keys() == {"one", "two"}

    machine.systemd.calls()
    again = machine.install()
    assert (again["changed"], again["ready"], machine.systemd.calls()) == (False, True, [])
    assert machine.pids() == pids

    for unit in (machine.containerd, machine.agent):
        machine.systemctl("restart", unit)
    machine.apply()
    assert machine.containers() == containers
    assert not set(machine.pids()) & set(pids)

    report = machine.uninstall()
    assert (report["errors"], report["installed"]) == ([], False)
    assert {name: found for name, found in machine.left().items() if found} == {}
    assert machine.systemd.enabled() == []
    assert machine.node.paths.record.exists()
    assert machine.uninstall()["changed"] is False


@pytest.mark.parametrize(
    "is_run_on_disk",
    [
        pytest.param(False, id="a node whose run files are in /run"),
        pytest.param(True, id="a node that keeps its run files on the disk"),
    ],
)
def test_after_a_power_cut_pods_come_back_and_nothing_leaks(machine, is_run_on_disk):
    machine.install()
    machine.apply()
    before, sandboxes = machine.containers(), set(recorded_containers(CNI_RESULTS, machine.node.names.network))
    assert len(sandboxes) == 2
    machine.cut_power(is_run_on_disk=is_run_on_disk)
    machine.boot()
    machine.apply()
    pods = machine.pods()
    assert pods.keys() == before.keys()
    assert not set(machine.containers().values()) & set(before.values())
    # Addresses of the last boot are free again, and so are the notes of its pods.
    leases = leased_containers(machine.node.paths.cni_data / machine.node.names.network)
    assert len(set(leases)) == 2
    subnet = json.loads(machine.node.paths.record.read_text())["subnet"].rpartition(".")[0]
    assert {pod["status"]["podIP"] for pod in pods.values()} == {f"{subnet}.2", f"{subnet}.3"}
    deadline = time.monotonic() + 30
    while left := sandboxes & set(recorded_containers(CNI_RESULTS, machine.node.names.network)):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)  # for the agent, another process


def test_uninstalling_after_a_power_cut_leaves_nothing(machine):
    machine.install()
    machine.apply()
    machine.cut_power()
    machine.uninstall()
    deadline = time.monotonic() + 30
    # Processes that the cut ended may take a moment to be gone.
    while left := {name: found for name, found in machine.left().items() if found}:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def test_a_node_of_klet_up_is_taken_over_with_its_pods(machine):
    machine.klet("up", "--detach", "--no-install", str(machine.file))
    containers = machine.containers()
    report = machine.install()
    assert report["ready"]
    machine.apply()
    assert machine.containers() == containers
    assert not machine.node.paths.supervisor_pid.exists()


def test_down_stops_an_installed_node_and_says_what_comes_next(machine):
    machine.install()
    machine.apply()
    _, errors = machine.klet("down")
    assert "The node is installed: it starts again" in errors
    assert f"systemctl disable {machine.containerd} {machine.agent}" in errors
    assert machine.pids() == (0, 0)
    _, errors = machine.klet("ps", expect=1)
    assert f"`systemctl status {machine.agent}`" in errors
    assert machine.systemd.enabled() == sorted([machine.containerd, machine.agent])
    machine.boot()
    assert machine.pods() == {}
    machine.apply()
    assert machine.pods().keys() == {"one", "two"}


def test_up_on_an_installed_node_leaves_it_running_when_it_is_interrupted(machine):
    machine.install("--no-start")
    assert machine.pids() == (0, 0)
    with machine.start(str(KLET), "up", str(machine.file)) as following:
        for line in following.stderr:
            if "Ctrl-C ends this command only" in line:
                break
        following.send_signal(signal.SIGINT)
        _, errors = following.communicate(timeout=60)
    assert following.returncode == 0, errors
    assert "the node is installed and stays" in errors
    assert machine.pods().keys() == {"one", "two"}
    assert all(machine.pids())


def test_a_unit_that_does_not_start_is_named_with_its_journal(machine):
    machine.install("--no-start")
    port = json.loads(machine.node.paths.record.read_text())["port"]
    with socket.create_server(("127.0.0.1", port)):
        report = machine.install(expect=1)
    (error,) = report["errors"]
    assert error.startswith(f"{machine.agent}: systemctl start ended with code 1")
    assert f"127.0.0.1:{port}" in error
    assert (report["ready"], report["installed"]) == (False, True)
    assert machine.install()["ready"]
