"""Files and units, with a systemctl that really starts programs."""

import pytest

from klet.cli.install.installer import Installer
from klet.cli.install.marks import seal
from klet.cli.install.plan import WantedFile, WantedUnit, plan_install, plan_uninstall
from klet.cli.install.reports import describe_install, describe_uninstall
from klet.cli.install.systemd import UnitFailed

NAME = "x.service"


class Bench:
    """One unit to install, again and again."""

    def __init__(self, fake, systemd, progress):
        self.path = fake.units / NAME
        self.installer = Installer(systemd=systemd, progress=progress)

    def text(self, command="sleep 1000", *, revision="1", kind="simple"):
        lines = f"Type={kind}\nExecStart=/bin/sh -c '{command}'\nEnvironment=KLET_REVISION={revision}\n"
        return seal(f"[Service]\n{lines}")

    async def install(self, command="sleep 1000", *, revision="1", kind="simple", **options):
        file = WantedFile(self.path, self.text(command, revision=revision, kind=kind))
        observed = await self.installer.look([file.path], [NAME])
        plan = plan_install(
            [file],
            [WantedUnit(NAME, revision)],
            found=observed.files,
            states=observed.units,
            **{"should_start": True, **options},
        )
        assert not plan.problems
        await self.installer.write(plan)
        await self.installer.run(plan, [NAME])
        return plan

    async def uninstall(self, **options):
        observed = await self.installer.look([self.path], [NAME])
        plan = plan_uninstall([self.path], [NAME], found=observed.files, states=observed.units, **options)
        if not plan.is_nothing:
            await self.installer.remove(plan, [NAME])
        return plan


@pytest.fixture
def bench(fake, systemd, progress):
    return Bench(fake, systemd, progress)


async def test_a_unit_is_written_enabled_and_started(bench, fake):
    plan = await bench.install()
    assert fake.calls() == ["daemon-reload", f"enable {NAME}", f"start {NAME}"]
    assert fake.enabled() == [NAME]
    assert fake.state(NAME)["ActiveState"] == "active"
    assert bench.path.stat().st_mode & 0o777 == 0o644
    assert [change.action for change in describe_install(plan)] == ["written"]


async def test_a_second_run_does_nothing(bench, fake):
    await bench.install()
    pid = fake.main_pid(NAME)
    fake.calls()
    plan = await bench.install()
    assert fake.calls() == []
    assert plan.is_nothing
    assert fake.main_pid(NAME) == pid


async def test_a_change_is_written_and_restarted(bench, fake):
    await bench.install()
    pid = fake.main_pid(NAME)
    fake.calls()
    await bench.install(revision="2")
    assert fake.calls() == ["daemon-reload", f"restart {NAME}"]
    assert fake.main_pid(NAME) not in {0, pid}


async def test_a_change_without_a_start_is_caught_up_with_later(bench, fake):
    await bench.install()
    await bench.install(revision="2", should_start=False)
    fake.calls()
    await bench.install(revision="2")
    assert fake.calls() == ["daemon-reload", f"restart {NAME}"]


async def test_a_command_that_was_killed_before_systemd_knew_the_change_is_caught_up_with(bench, systemd):
    await bench.install()
    bench.path.write_text(bench.text(revision="2"))
    await bench.install(revision="2")
    assert systemd.running_revision((await systemd.show([NAME]))[NAME]) == "2"
    assert (await bench.install(revision="2")).is_nothing


async def test_a_directory_of_drop_ins_that_is_a_link_stays(bench, fake, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    directory = fake.units / f"{NAME}.d"
    directory.symlink_to(tmp_path / "elsewhere")
    await bench.install()
    bench.path = directory / "10-klet.conf"
    bench.path.write_text(seal("[Service]\n"))
    await bench.uninstall()
    assert directory.is_symlink()
    assert not bench.path.exists()


async def test_a_unit_that_fails_is_named_with_its_journal(bench, fake):
    with pytest.raises(UnitFailed) as caught:
        await bench.install("echo no such disk >&2; exit 3", kind="notify")
    assert str(caught.value).startswith(f"{NAME}: systemctl start ended with code 1: Job for {NAME} failed")
    assert str(caught.value).endswith("its journal ends with:\n    no such disk")
    assert fake.enabled() == [NAME]


async def test_uninstalling_leaves_nothing_and_a_second_time_finds_nothing(bench, fake, systemd):
    await bench.install()
    fake.calls()
    plan = await bench.uninstall()
    assert fake.calls() == [f"stop {NAME}", f"disable {NAME}", "daemon-reload", f"reset-failed {NAME}"]
    assert (fake.enabled(), bench.path.exists(), fake.main_pid(NAME)) == ([], False, 0)
    assert [change.action for change in describe_uninstall(plan)] == ["removed"]
    assert not (await systemd.show([NAME]))[NAME].is_loaded
    assert (await bench.uninstall()).is_nothing
    assert fake.calls() == []


async def test_a_file_that_was_changed_by_hand_is_kept_and_does_not_start_at_boot(bench, fake):
    await bench.install()
    bench.path.write_text(bench.path.read_text() + "# mine\n")
    plan = await bench.uninstall()
    assert plan.kept == (bench.path,)
    assert bench.path.exists()
    assert (fake.enabled(), fake.state(NAME)["ActiveState"]) == ([], "inactive")
    await bench.uninstall(is_forced=True)
    assert not bench.path.exists()


async def test_drop_ins_of_the_user_stay(bench, fake):
    own = fake.units / f"{NAME}.d/override.conf"
    own.parent.mkdir()
    own.write_text("[Service]\nNice=1\n")
    await bench.install()
    await bench.uninstall()
    assert own.exists()


async def test_what_systemctl_refuses_is_an_error(systemd):
    with pytest.raises(UnitFailed, match=r"nosuch.service: systemctl start ended with code 5: .*not found"):
        await systemd.start(["nosuch.service"])


async def test_the_journal_of_a_unit(bench, fake, systemd):
    await bench.install("echo one; echo two; exec sleep 1000")
    while "two" not in fake.journal(NAME):  # written by another process
        pass
    assert systemd.journal(NAME, lines=1) == "two\n"
    assert systemd.explain_failure(NAME, "x").endswith("its journal ends with:\n    one\n    two")
    assert "journalctl -u other.service" in systemd.explain_failure("other.service", "x")
