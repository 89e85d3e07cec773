"""klet in the kubelet's place: the program, the unit, and what was there before."""

import os
import shlex
import sys
from pathlib import Path

import pytest

from klet.aio.clock import SystemClock
from klet.cli.install.kubelet_form import KubeletForm, KubeletInstallOptions
from klet.cli.node.node import NodeError
from klet.host.errors import FileError

UNIT = "kubelet.service"


class Bench:
    """A machine on which klet becomes the kubelet."""

    def __init__(self, directory, agent, fake, files, systemd, progress):
        self.root_dir = directory / "kubelet"
        self.fake, self.files = fake, files
        self.form = KubeletForm(
            program=(sys.executable, str(agent)), files=files, systemd=systemd, progress=progress, clock=SystemClock()
        )

    def join(self):
        """Write what `kubeadm join` writes."""
        files = {
            self.files.kubelet_configuration: "kind: KubeletConfiguration\n",
            self.files.root / "var/lib/kubelet/kubeadm-flags.env": 'KUBELET_KUBEADM_ARGS="--of-kubeadm"\n',
            self.files.root / "etc/default/kubelet": f'KUBELET_EXTRA_ARGS="--root-dir={self.root_dir}"\n',
        }
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def put_upstream(self, *, with_unit=True):
        """Have what upstream's packages bring, and the unit running."""
        program = self.files.kubelet_program
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\nexec sleep 1000\n")
        program.chmod(0o755)
        if with_unit:
            unit = self.files.root / "usr/lib/systemd/system/kubelet.service"
            drop_in = unit.parent / "kubelet.service.d/10-kubeadm.conf"
            drop_in.parent.mkdir(parents=True)
            unit.write_text("[Service]\nExecStart=/usr/bin/kubelet\n")
            command = "ExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n"
            drop_in.write_text(f"[Service]\nEnvironmentFile=-/etc/default/kubelet\n{command}")
        return program.read_text()

    async def install(self, **options):
        return await self.form.install(KubeletInstallOptions(**options), show=lambda _: None)

    async def uninstall(self, **options):
        return await self.form.uninstall(**{"is_forced": False, "is_dry_run": False, **options})


@pytest.fixture
def bench(tmp_path, agent, fake, files, systemd, progress):
    return Bench(tmp_path, agent, fake, files, systemd, progress)


def actions(report):
    return {Path(file.path).name: file.action for file in report.files}


async def test_before_it_joins_a_cluster_it_is_only_enabled(bench, fake):
    report = await bench.install()
    assert actions(report) == {"kubelet": "written", "kubelet.service": "written", "10-kubeadm.conf": "written"}
    assert fake.enabled() == [UNIT]
    assert (report.ready, report.errors, fake.main_pid(UNIT)) == (False, (), 0)
    assert os.access(bench.files.kubelet_program, os.X_OK)


async def test_on_a_node_that_has_joined_it_is_started_with_all_its_arguments(bench, fake):
    bench.join()
    report = await bench.install()
    assert report.ready
    words = (bench.root_dir / "arguments").read_text().splitlines()
    assert words[0] == "run"
    assert words[1:3] == [
        "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
        "--kubeconfig=/etc/kubernetes/kubelet.conf",
    ]
    assert words[3:] == ["--config=/var/lib/kubelet/config.yaml", "--of-kubeadm", f"--root-dir={bench.root_dir}"]
    pid = fake.main_pid(UNIT)
    fake.calls()
    again = await bench.install()
    assert (again.changed, again.ready, fake.calls()) == (False, True, [])
    assert fake.main_pid(UNIT) == pid


async def test_another_kubelet_is_not_overwritten(bench):
    original = bench.put_upstream()
    with pytest.raises(NodeError, match=r"usr/bin/kubelet is not klet's: --replace keeps it as"):
        await bench.install()
    assert bench.files.kubelet_program.read_text() == original
    assert not bench.files.kubelet_unit.exists()


async def test_it_is_kept_aside_and_put_back(bench, fake, systemd):
    bench.join()
    original = bench.put_upstream()
    await systemd.enable([UNIT])
    await systemd.start([UNIT])
    upstream = fake.main_pid(UNIT)
    report = await bench.install(may_replace=True)
    assert report.ready
    assert actions(report) == {"kubelet.before-klet": "moved", "kubelet": "written"}
    assert bench.files.kubelet_aside.read_text() == original
    assert "apt-mark hold kubelet" in report.warnings[0]
    klet = fake.main_pid(UNIT)
    assert klet not in {0, upstream}

    report = await bench.uninstall()
    assert actions(report) == {"kubelet": "restored"}
    assert bench.files.kubelet_program.read_text() == original
    assert not bench.files.kubelet_aside.exists()
    assert fake.enabled() == [UNIT]
    assert fake.main_pid(UNIT) not in {0, upstream, klet}
    assert not (await bench.uninstall()).changed


async def test_uninstalling_what_replaced_nothing_leaves_nothing(bench, fake):
    bench.join()
    before = sorted(path for path in bench.files.root.rglob("*") if path.is_file())
    await bench.install()
    report = await bench.uninstall()
    assert (report.errors, report.installed) == ((), False)
    assert sorted(path for path in bench.files.root.rglob("*") if path.is_file()) == before
    assert not bench.files.kubeadm_drop_in.parent.exists()
    assert (fake.enabled(), fake.main_pid(UNIT)) == ([], 0)


async def test_a_dry_run_does_nothing(bench, fake):
    shown = []
    report = await bench.form.install(KubeletInstallOptions(is_dry_run=True), show=shown.append)
    assert report.changed
    assert shlex.split(shown[0].text.splitlines()[-1])[-2:] == ["run", "$@"]
    assert (fake.calls(), bench.files.kubelet_program.exists()) == ([], False)
    await bench.install()
    fake.calls()
    report = await bench.uninstall(is_dry_run=True)
    assert (report.changed, report.installed, fake.calls()) == (True, True, [])


async def test_what_is_kept_is_not_lost_to_a_script_in_its_place(bench):
    original = bench.put_upstream()
    await bench.install(may_replace=True)
    bench.files.kubelet_program.write_text("#!/bin/sh\nexec klet run\n")
    with pytest.raises(NodeError, match=r"another kubelet is kept as .*kubelet.before-klet already: move away"):
        await bench.install(may_replace=True)
    assert bench.files.kubelet_aside.read_text() == original


async def test_a_kubelet_of_a_newer_package_is_kept_in_place_of_the_older(bench):
    bench.put_upstream()
    await bench.install(may_replace=True)
    newer = b"\x7fELF newer"
    bench.files.kubelet_program.write_bytes(newer)
    report = await bench.install(may_replace=True)
    assert actions(report) == {"kubelet.before-klet": "moved", "kubelet": "written"}
    assert bench.files.kubelet_aside.read_bytes() == newer


async def test_a_link_to_the_kubelet_comes_back_as_a_link(bench):
    bench.put_upstream()
    elsewhere = bench.files.kubelet_program.rename(bench.files.root / "kubelet-1.35")
    bench.files.kubelet_program.symlink_to(elsewhere)
    await bench.install(may_replace=True)
    assert bench.files.kubelet_aside.is_symlink()
    await bench.uninstall()
    assert bench.files.kubelet_program.readlink() == elsewhere


async def test_a_new_version_of_klet_is_restarted(bench, fake, monkeypatch):
    bench.join()
    await bench.install()
    pid = fake.main_pid(UNIT)
    monkeypatch.setattr("klet.cli.install.kubelet_form.__version__", "99")
    report = await bench.install()
    assert actions(report)["kubelet"] == "written"
    assert fake.main_pid(UNIT) not in {0, pid}


async def test_a_file_in_place_of_the_directory_of_units_is_an_error_that_names_it(bench, fake):
    fake.units.rmdir()
    fake.units.write_text("")
    with pytest.raises(FileError, match=r"cannot read .*kubelet.service: Not a directory"):
        await bench.install()
    assert not bench.files.kubelet_program.exists()
