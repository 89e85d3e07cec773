"""`klet install --kubelet --replace` and its end, killed at each step: the kubelet that was there is never lost."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from klet.aio.clock import SystemClock
from klet.cli.install.kubelet_form import KubeletForm, KubeletInstallOptions
from klet.cli.install.machine_files import MachineFiles
from klet.cli.install.systemd import Systemd
from klet.cli.progress import PlainProgress

UNIT = "kubelet.service"
UPSTREAM = "#!/bin/sh\nexec sleep 1000\n"
MOST_STEPS = 60
# Runs one command, and kills itself before its Nth change: of a file, or by systemctl.
CHILD = """
import asyncio, os, signal, sys
from tests.component.cli.install.test_killed import act
command, root, program, last = sys.argv[1:]
seen = 0
def changes(event, arguments):
    if event == "open":
        return isinstance(arguments[0], (str, os.PathLike)) and str(arguments[0]).startswith(root) and arguments[2] & 3
    return event in {"os.rename", "os.link", "os.remove", "os.rmdir", "subprocess.Popen"}
def count(event, arguments):
    global seen
    if changes(event, arguments):
        seen += 1
        if seen == int(last):
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
asyncio.run(act(command, root, program))
"""


async def act(command, root, program):
    form = KubeletForm(
        program=(sys.executable, program),
        files=MachineFiles(Path(root)),
        systemd=Systemd(root=Path(root)),
        progress=PlainProgress(clock=SystemClock()),
        clock=SystemClock(),
    )
    if command == "install":
        return await form.install(KubeletInstallOptions(may_replace=True), show=lambda _: None)
    return await form.uninstall(is_forced=False, is_dry_run=False)


class Machine:
    """A node of a cluster, on which upstream's kubelet runs."""

    def __init__(self, fake, files, program):
        self.fake, self.files, self.program = fake, files, program

    async def act(self, command):
        return await act(command, str(self.files.root), str(self.program))

    def kill(self, command, *, step):
        """Run a command that is killed at a step; return whether it came so far."""
        words = [sys.executable, "-c", CHILD, command, str(self.files.root), str(self.program), str(step)]
        answer = subprocess.run(words, check=False, capture_output=True, cwd=Path(__file__).parents[4])
        assert answer.returncode in {0, -9}, answer.stderr.decode()
        return answer.returncode != 0

    def running(self):
        pid = self.fake.main_pid(UNIT)
        return Path(f"/proc/{pid}/cmdline").read_text() if pid else ""

    def assert_nothing_lost(self):
        assert UPSTREAM in {
            path.read_text() for path in (self.files.kubelet_program, self.files.kubelet_aside) if path.exists()
        }
        assert os.access(self.files.kubelet_program, os.X_OK)


@pytest.fixture
async def machine(tmp_path, agent, fake, files, systemd):
    root = tmp_path / "kubelet"
    for path, text in {
        files.kubelet_configuration: "kind: KubeletConfiguration\n",
        files.root / "etc/default/kubelet": f'KUBELET_EXTRA_ARGS="--root-dir={root}"\n',
        files.root / "usr/lib/systemd/system/kubelet.service": (
            "[Service]\nEnvironmentFile=-/etc/default/kubelet\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n"
        ),
        files.root / "usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": "[Service]\n",
        files.kubelet_program: UPSTREAM,
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    files.kubelet_program.chmod(0o755)
    await systemd.enable([UNIT])
    await systemd.start([UNIT])
    return Machine(fake, files, agent)


@pytest.mark.deadline(300)
async def test_an_install_that_is_killed_at_any_step_is_finished_by_the_next(machine):
    steps = 0
    while machine.kill("install", step=steps + 1):
        steps += 1
        assert steps < MOST_STEPS
        machine.assert_nothing_lost()
        assert (await machine.act("install")).ready
        assert "agent.py" in machine.running()
        assert machine.files.kubelet_aside.read_text() == UPSTREAM
        await machine.act("uninstall")
        assert machine.files.kubelet_program.read_text() == UPSTREAM
        assert "sleep" in machine.running()
    assert steps > 3


@pytest.mark.deadline(300)
async def test_an_uninstall_that_is_killed_at_any_step_is_finished_by_the_next(machine):
    await machine.act("install")
    steps = 0
    while machine.kill("uninstall", step=steps + 1):
        steps += 1
        assert steps < MOST_STEPS
        machine.assert_nothing_lost()
        await machine.act("uninstall")
        assert machine.files.kubelet_program.read_text() == UPSTREAM
        assert not machine.files.kubelet_aside.exists()
        assert "sleep" in machine.running()
        await machine.act("install")
    assert steps > 3


async def test_an_install_that_is_killed_before_it_replaced_anything_is_undone(machine):
    os.link(machine.files.kubelet_program, machine.files.kubelet_aside)
    await machine.act("uninstall")
    assert machine.files.kubelet_program.read_text() == UPSTREAM
    assert not machine.files.kubelet_aside.exists()
    assert "sleep" in machine.running()


async def test_of_two_installs_at_once_one_is_refused_and_the_kubelet_is_kept(machine):
    results = await asyncio.gather(*(machine.act("install") for _ in range(3)), return_exceptions=True)
    assert (
        sorted(str(result)[:27] for result in results if isinstance(result, Exception))
        == ["another klet command is at "] * 2
    )
    assert machine.files.kubelet_aside.read_text() == UPSTREAM
    assert "agent.py" in machine.running()
