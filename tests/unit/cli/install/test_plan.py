from pathlib import Path

import pytest

from klet.cli.install.marks import FileState, FoundFile, seal
from klet.cli.install.plan import (
    FoundUnit,
    InstallPlan,
    UninstallPlan,
    WantedFile,
    WantedUnit,
    plan_install,
    plan_uninstall,
)

A, B = Path("/units/a.service"), Path("/units/b.service")
PROGRAM, ASIDE = Path("/bin/kubelet"), Path("/bin/kubelet.before-klet")
FILES = [WantedFile(A, seal("a")), WantedFile(B, seal("b"))]
UNITS = [WantedUnit("a.service", "1"), WantedUnit("b.service", "1")]
ABSENT, FOREIGN = FoundFile(FileState.ABSENT), FoundFile(FileState.FOREIGN)
OURS_A, OURS_B = FoundFile(FileState.OURS, seal("a")), FoundFile(FileState.OURS, seal("b"))
OLD_A = FoundFile(FileState.OURS, seal("older"))
CHANGED_A = FoundFile(FileState.CHANGED, seal("a") + "# mine")
NEW = FoundUnit()
RUNNING = FoundUnit(is_loaded=True, is_enabled=True, is_active=True, is_idle=False, revision="1")
OUTDATED = FoundUnit(is_loaded=True, is_enabled=True, is_active=True, is_idle=False, revision="0")
FAILING = FoundUnit(is_loaded=True, is_enabled=True, is_idle=False)
STOPPED = FoundUnit(is_loaded=True, is_enabled=True)


@pytest.mark.parametrize(
    ("files", "units", "options", "expected"),
    [
        pytest.param(
            (ABSENT, ABSENT),
            (NEW, NEW),
            {},
            InstallPlan(write=tuple(FILES), enable=("a.service", "b.service"), start=("a.service", "b.service")),
            id="a machine without units gets both, now and at boot",
        ),
        pytest.param(
            (ABSENT, ABSENT),
            (NEW, NEW),
            {"should_start": False},
            InstallPlan(write=tuple(FILES), enable=("a.service", "b.service")),
            id="only at boot if it is not to be started",
        ),
        pytest.param(
            (OURS_A, OURS_B), (RUNNING, RUNNING), {}, InstallPlan(unchanged=(A, B)), id="a second run changes nothing"
        ),
        pytest.param(
            (OLD_A, OURS_B),
            (OUTDATED, RUNNING),
            {},
            InstallPlan(write=(FILES[0],), unchanged=(B,), restart=("a.service",)),
            id="only what changed is written and restarted",
        ),
        pytest.param(
            (OURS_A, OURS_B),
            (OUTDATED, RUNNING),
            {},
            InstallPlan(unchanged=(A, B), restart=("a.service",)),
            id="a process that runs from before the last --no-start is restarted",
        ),
        pytest.param(
            (OLD_A, OURS_B),
            (OUTDATED, RUNNING),
            {"should_start": False},
            InstallPlan(write=(FILES[0],), unchanged=(B,)),
            id="nothing is restarted if nothing is to be started",
        ),
        pytest.param(
            (OURS_A, OURS_B),
            (FAILING, STOPPED),
            {},
            InstallPlan(unchanged=(A, B), start=("a.service", "b.service")),
            id="what does not run is started",
        ),
        pytest.param(
            (OURS_A, OURS_B),
            (RUNNING, FoundUnit(is_loaded=True, is_active=True, is_idle=False, revision="1")),
            {},
            InstallPlan(unchanged=(A, B), enable=("b.service",)),
            id="what was disabled is enabled again",
        ),
        pytest.param(
            (CHANGED_A, OURS_B),
            (RUNNING, RUNNING),
            {"is_forced": True},
            InstallPlan(write=(FILES[0],), unchanged=(B,), restart=("a.service",)),
            id="a file that was changed by hand is written by force, and what may run so is restarted",
        ),
    ],
)
def test_plan_install(files, units, options, expected):
    plan = plan_install(
        FILES,
        UNITS,
        found=dict(zip((A, B), files, strict=True)),
        states=dict(zip(("a.service", "b.service"), units, strict=True)),
        **{"should_start": True, **options},
    )
    assert plan == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(FOREIGN, "/units/a.service is not klet's", id="a unit of somebody else"),
        pytest.param(CHANGED_A, "/units/a.service was changed by hand: --force", id="a unit that was changed"),
    ],
)
def test_what_is_in_the_way_stops_everything(found, expected):
    plan = plan_install(
        FILES, UNITS, found={A: found, B: ABSENT}, states={"a.service": NEW, "b.service": NEW}, should_start=True
    )
    assert plan == InstallPlan(problems=plan.problems)
    (problem,) = plan.problems
    assert problem.startswith(expected)


def test_a_foreign_unit_is_not_overwritten_by_force_either():
    plan = plan_install(
        FILES[:1],
        UNITS[:1],
        found={A: FOREIGN},
        states={"a.service": NEW},
        should_start=True,
        is_forced=True,
        may_replace=True,
    )
    assert plan.problems


KUBELET = WantedFile(PROGRAM, seal("x"), mode=0o755, aside=ASIDE)


@pytest.mark.parametrize(
    ("found", "state", "may_replace", "expected"),
    [
        pytest.param(ABSENT, STOPPED, False, InstallPlan(write=(KUBELET,), start=("k",)), id="there is no kubelet"),
        pytest.param(
            FOREIGN,
            RUNNING,
            True,
            InstallPlan(aside=((PROGRAM, ASIDE),), write=(KUBELET,), restart=("k",)),
            id="another kubelet is kept aside, and the unit restarted",
        ),
        pytest.param(
            FoundFile(FileState.OURS, seal("x")),
            RUNNING,
            True,
            InstallPlan(unchanged=(PROGRAM,)),
            id="klet is never kept aside for itself",
        ),
        pytest.param(
            FoundFile(FileState.OURS, seal("older")),
            RUNNING,
            False,
            InstallPlan(write=(KUBELET,), restart=("k",)),
            id="an older file of klet's is replaced",
        ),
    ],
)
def test_the_kubelets_place(found, state, may_replace, expected):
    plan = plan_install(
        [KUBELET],
        [WantedUnit("k")],
        found={PROGRAM: found},
        states={"k": state},
        should_start=True,
        may_replace=may_replace,
    )
    assert plan == expected


def test_another_kubelet_needs_a_word():
    plan = plan_install([KUBELET], [], found={PROGRAM: FOREIGN}, states={}, should_start=True)
    assert plan.problems == (
        "/bin/kubelet is not klet's: --replace keeps it as /bin/kubelet.before-klet, and `klet uninstall` puts it back",
    )


@pytest.mark.parametrize(
    ("files", "units", "is_forced", "expected"),
    [
        pytest.param((ABSENT, ABSENT), (NEW, NEW), False, UninstallPlan(), id="nothing is installed"),
        pytest.param((FOREIGN, FOREIGN), (RUNNING, RUNNING), True, UninstallPlan(), id="units of somebody else"),
        pytest.param(
            (OURS_A, OURS_B),
            (RUNNING, RUNNING),
            False,
            UninstallPlan(stop=("b.service", "a.service"), disable=("a.service", "b.service"), remove=(A, B)),
            id="all is stopped in reverse order, disabled and removed",
        ),
        pytest.param(
            (OURS_A, ABSENT),
            (FAILING, NEW),
            False,
            UninstallPlan(stop=("a.service",), disable=("a.service",), remove=(A,)),
            id="half an installation, between two starts",
        ),
        pytest.param(
            (CHANGED_A, OURS_B),
            (STOPPED, STOPPED),
            False,
            UninstallPlan(disable=("a.service", "b.service"), remove=(B,), kept=(A,)),
            id="a file that was changed by hand is kept and disabled",
        ),
        pytest.param(
            (CHANGED_A, OURS_B),
            (STOPPED, STOPPED),
            True,
            UninstallPlan(disable=("a.service", "b.service"), remove=(A, B)),
            id="and removed by force",
        ),
        pytest.param((FOREIGN, OURS_B), (NEW, NEW), False, UninstallPlan(remove=(B,)), id="what is foreign stays"),
    ],
)
def test_plan_uninstall(files, units, is_forced, expected):
    plan = plan_uninstall(
        [A, B],
        ["a.service", "b.service"],
        found=dict(zip((A, B), files, strict=True)),
        states=dict(zip(("a.service", "b.service"), units, strict=True)),
        is_forced=is_forced,
    )
    assert plan == expected


OURS = FoundFile(FileState.OURS, seal("x"))
UNIT = Path("/units/kubelet.service")


@pytest.mark.parametrize(
    ("program", "unit", "state", "aside", "expected"),
    [
        pytest.param(
            OURS,
            ABSENT,
            RUNNING,
            {PROGRAM: ASIDE},
            UninstallPlan(remove=(PROGRAM,), restore=((ASIDE, PROGRAM),), restart=("kubelet.service",)),
            id="the packaged kubelet comes back and goes on with the packaged unit",
        ),
        pytest.param(
            OURS,
            OURS,
            RUNNING,
            {PROGRAM: ASIDE},
            UninstallPlan(
                stop=("kubelet.service",),
                disable=("kubelet.service",),
                remove=(PROGRAM, UNIT),
                restore=((ASIDE, PROGRAM),),
            ),
            id="without a unit of its own it is only put back",
        ),
        pytest.param(
            OURS,
            ABSENT,
            RUNNING,
            None,
            UninstallPlan(stop=("kubelet.service",), disable=("kubelet.service",), remove=(PROGRAM,)),
            id="a packaged unit without its kubelet is switched off",
        ),
        pytest.param(
            ABSENT,
            ABSENT,
            STOPPED,
            {PROGRAM: ASIDE},
            UninstallPlan(restore=((ASIDE, PROGRAM),)),
            id="klet was deleted by hand, and the original waits",
        ),
        pytest.param(
            FOREIGN,
            ABSENT,
            RUNNING,
            {PROGRAM: ASIDE},
            UninstallPlan(),
            id="an upgrade of the package has put a newer one in place",
        ),
    ],
)
def test_what_was_replaced_comes_back(program, unit, state, aside, expected):
    plan = plan_uninstall(
        [PROGRAM, UNIT],
        ["kubelet.service"],
        found={PROGRAM: program, UNIT: unit},
        states={"kubelet.service": state},
        aside=aside,
    )
    assert plan == expected


def test_a_restoring_that_was_killed_goes_on():
    plan = plan_uninstall(
        [PROGRAM, UNIT],
        ["kubelet.service"],
        found={PROGRAM: FOREIGN, UNIT: ABSENT},
        states={"kubelet.service": RUNNING},
        aside={PROGRAM: ASIDE},
        halfway={PROGRAM},
    )
    assert plan == UninstallPlan(restore=((ASIDE, PROGRAM),), restart=("kubelet.service",))
