"""Files go into the machine and come out of it, with what they hold and how they may be used."""

import json
from pathlib import Path

import pytest

from klet.testing.vm.debian import TREE

SCRIPT = "#!/bin/sh\necho yes\n"


@pytest.fixture
def place(machine):
    yield "/root/files"
    machine.run("rm -rf /root/files")


def test_a_directory_is_the_same_after_the_way_in_and_out(machine, place, tmp_path):
    tree = tmp_path / "tree"
    (tree / "below").mkdir(parents=True)
    (tree / "below" / "script").write_text(SCRIPT)
    (tree / "below" / "script").chmod(0o755)
    machine.copy_in(tree, place)
    assert machine.output(f"{place}/tree/below/script") == "yes"
    machine.run(f"ln -s below/script {place}/tree/link")
    machine.copy_out(f"{place}/tree", tmp_path / "out")
    out = tmp_path / "out" / "tree"
    assert {str(path.relative_to(out)) for path in out.rglob("*")} == {"below", "below/script", "link"}
    assert (out / "below" / "script").stat().st_mode & 0o777 == 0o755
    assert (out / "link").read_text() == SCRIPT


def test_the_machine_has_the_checkout_and_cannot_change_it(machine):
    here = Path(__file__)
    root = here.parents[2]
    assert machine.output(f"cat {TREE}/{here.relative_to(root)}") == here.read_text().strip()
    assert machine.run(f"touch {TREE}/written", check=False).code != 0


def test_the_machine_is_a_debian_that_systemd_runs(machine):
    assert machine.output("systemctl is-system-running") == "running"
    assert machine.output("stat -fc %T /sys/fs/cgroup") == "cgroup2fs"
    units = json.loads(machine.output("systemctl list-units --type=service --state=active -o json"))
    assert {"containerd.service", "systemd-networkd.service"} <= {unit["unit"] for unit in units}
