"""What the commands say on machines that lack something; nothing here may touch the machine."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from klet.cli.app import main
from klet.cli.install.marks import seal
from klet.cli.keepers import advise
from klet.cli.node.node import find_node


@pytest.fixture
def as_root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.mark.parametrize(("command", "instead"), [("install", "`klet up --detach`"), ("uninstall", "`klet down`")])
def test_without_systemd_they_say_what_to_do(tmp_path, monkeypatch, capsys, as_root, command, instead):
    monkeypatch.setenv("KLET_MACHINE_ROOT", str(tmp_path))
    assert main([command, "--state-dir", str(tmp_path / "state")]) == 1
    reported = capsys.readouterr().err
    assert "systemd does not run this machine" in reported
    assert instead in reported
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_without_root_they_say_so(fake, tmp_path, monkeypatch, capsys, command):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main([command, "--state-dir", str(tmp_path / "state")]) == 1
    assert f"`klet {command}` needs root" in capsys.readouterr().err
    assert fake.calls() == []


def test_a_dry_run_needs_neither_and_prints_the_units(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KLET_MACHINE_ROOT", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    state = tmp_path / "state"
    assert main(["install", "--dry-run", "--state-dir", str(state)]) == 0
    printed = capsys.readouterr()
    assert "would refuse" in printed.err
    assert f"--config={state}/etc/kubelet.yaml" in printed.out
    assert main(["install", "--dry-run", "-o", "json", "--state-dir", str(state)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["dryRun"], report["changed"], report["installed"]) == (True, True, False)
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_ends_with_all_that_would_be_done(fake, tmp_path, capsys):
    program = fake.root / "usr/bin/kubelet"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    assert main(["install", "--kubelet", "--replace", "--dry-run"]) == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"Dry run: would keep the kubelet that is there as {program}.before-klet, write {program}, ")
    assert last.endswith(", enable kubelet.service.")


def test_uninstalling_nothing_is_fine(fake, tmp_path, capsys, as_root):
    state = tmp_path / "state"
    assert main(["uninstall", "--state-dir", str(state), "-o", "json"]) == 0
    printed = capsys.readouterr()
    assert "is not installed" in printed.err
    assert json.loads(printed.out)["changed"] is False
    assert main(["uninstall", "--kubelet"]) == 0
    assert not state.exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["install", "--replace"], "it goes with --kubelet", id="replacing without a kubelet"),
        pytest.param(["uninstall", "--kubelet", "--purge"], "kubeadm reset", id="purging a kubelet"),
        pytest.param(["install", "-o", "yaml"], "only json", id="a format that is not there"),
        pytest.param(["boot", "nonsense"], "prepare, images", id="a step that is not there"),
    ],
)
def test_options_that_do_not_go_together(capsys, arguments, expected):
    assert main(arguments) == 2
    assert expected in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_unit_of_somebody_else_stops_the_installation(fake, tmp_path, capsys, as_root):
    state = tmp_path / "state"
    node = find_node(state)
    unit = fake.units / f"klet-{node.names.tag}.service"
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    assert main(["install", "--state-dir", str(state)]) == 1
    assert f"{unit} is not klet's" in capsys.readouterr().err
    assert (fake.calls(), state.exists()) == ([], False)


def test_who_asks_an_installed_node_in_vain_is_sent_to_systemd(fake, files, tmp_path):
    node = find_node(tmp_path / "state")
    assert advise(node, files) is None
    for name in (f"klet-{node.names.tag}.service", f"klet-{node.names.tag}-containerd.service"):
        (fake.units / name).write_text(seal("[Service]\n"))
    assert f"`systemctl status klet-{node.names.tag}.service`" in advise(node, files)
    shutil.rmtree(fake.root / "run")
    assert advise(node, files) is None


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing: apt-get install systemd"
)
@pytest.mark.parametrize("name", ["state", "a b%c$d\\e"])
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path, monkeypatch, capsys, name):
    monkeypatch.setenv("KLET_MACHINE_ROOT", str(tmp_path))
    # A unit of which systemd has something to say, so that its silence means something.
    wrong = tmp_path / "wrong.service"
    wrong.write_text("[Service]\nType=notify\nExecStart=/bin/true\nWatchdogSec=often\n")
    assert "wrong.service:4: Failed to parse sec value" in verify(wrong)
    # Nothing is made there, and a path below the test's own may be too long for sockets.
    assert main(["install", "--dry-run", "--state-dir", f"/var/lib/{name}"]) == 0
    containerd, agent = (text.partition("\n") for text in capsys.readouterr().out.split(f"# {tmp_path}/etc")[1:])
    units = []
    for unit_path, _, text in (containerd, agent):
        units.append(tmp_path / Path(unit_path).name)
        units[-1].write_text(text)
    assert verify(*units) == ""


def test_the_kubelet_that_is_installed_is_klet(fake, capsys, as_root):
    assert main(["install", "--kubelet", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["installed"]
    program = str(fake.root / "usr/bin/kubelet")
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, cwd="/")
    assert answer.stdout.startswith("Kubernetes v1.")
    assert main(["uninstall", "--kubelet", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"][0] == {"path": program, "action": "removed"}


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing: apt-get install systemd"
)
def test_systemd_finds_nothing_wrong_with_the_kubelet(fake, capsys, as_root):
    assert main(["install", "--kubelet"]) == 0
    capsys.readouterr()
    for text in (fake.units / "kubelet.service", fake.units / "kubelet.service.d/10-kubeadm.conf"):
        # systemd looks whether there is such a program.
        text.write_text(text.read_text().replace("/usr/bin/kubelet", str(fake.root / "usr/bin/kubelet")))
    assert verify(fake.units / "kubelet.service") == ""


def verify(*units):
    command = ["systemd-analyze", "verify", *(str(unit) for unit in units)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    # Of klet's own units only: what else is wrong on this machine is not theirs.
    return "\n".join(line for line in answer.stderr.splitlines() if any(unit.name in line for unit in units))
