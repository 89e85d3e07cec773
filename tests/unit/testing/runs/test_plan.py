from pathlib import Path

import pytest

from klet.testing.runs.plan import PytestProcess, RunStage, plan_arguments, plan_whole

REPOSITORY = Path(__file__).parents[4]


@pytest.fixture
def tests(tmp_path):
    """A directory of tests with the given files."""

    def make(*names):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        return tmp_path

    return make


def shown(stages, directory):
    return [
        [(part.name, *(each.replace(f"{directory}/", "") for each in part.arguments)) for part in stage.parts]
        for stage in stages
    ]


def test_what_uses_the_machine_runs_beside_what_does_not_and_the_simulation_last(tests):
    directory = tests(
        "unit/test_a.py",
        "component/deep/test_b.py",
        "fuzz/test_h.py",
        "integration/host/test_cgroups_v2.py",
        "contract/test_c.py",
        "simulation/test_d.py",
        "brand_new/test_e.py",
        "security/test_f.py",
        "security/races/test_g.py",
        "machine/test_i.py",
        "data/table.py",
    )
    apart = ("security/races", "integration/host/test_cgroups_v2.py")
    assert shown(plan_whole(directory), directory) == [
        [
            ("machine", "brand_new", "contract", "integration", "security", *(f"--ignore={path}" for path in apart)),
            ("beside", *apart, "fuzz", "component", "unit"),
        ],
        [("simulation", "simulation")],
    ]


def test_parts_without_tests_are_left_out(tests):
    directory = tests("unit/test_a.py", "integration/conftest.py")
    assert shown(plan_whole(directory), directory) == [[("beside", "unit")]]


def test_arguments_are_one_part(tests):
    assert plan_arguments(["-k", "a b"]) == (RunStage((PytestProcess("tests", ("-k", "a b"), is_attended=True),)),)


def test_no_test_of_this_repository_is_left_out_but_those_of_scripts_vm():
    planned = {
        argument for stage in plan_whole(REPOSITORY / "tests") for part in stage.parts for argument in part.arguments
    }
    for path in (REPOSITORY / "tests").rglob("test_*.py"):
        if path.is_relative_to(REPOSITORY / "tests" / "machine"):
            continue
        assert planned & {str(path), *map(str, path.parents)}, path
