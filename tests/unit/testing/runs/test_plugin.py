import os
from pathlib import PurePath

import pytest

from klet.host.beneath import open_directory
from klet.testing.runs.plugin import (
    DEFAULT_LIMIT,
    LimitError,
    choose_limit,
    parse_limits,
    parse_seconds,
    remove_files,
)

LIMITS = {PurePath("tests"): 100.0, PurePath("tests/unit"): 60.0, PurePath("tests/unit/test_slow.py"): 90.0}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("tests/unit/api/test_a.py", 60, id="the nearest directory counts"),
        pytest.param("tests/other/test_a.py", 100, id="one further up counts for what has none"),
        pytest.param("tests/unit/test_slow.py", 90, id="a file may have its own"),
        pytest.param("tests/units/test_a.py", 100, id="a name that only begins the same is another"),
        pytest.param("/tmp/test_a.py", DEFAULT_LIMIT, id="elsewhere"),
    ],
)
def test_choose_limit(path, expected):
    assert choose_limit(PurePath(path), LIMITS) == expected


def test_parse_limits():
    assert parse_limits(["tests/unit: 60", "tests : 1.5"]) == {PurePath("tests/unit"): 60.0, PurePath("tests"): 1.5}


@pytest.mark.parametrize(
    "line", ["tests/unit", "tests/unit: a", "tests/unit:", "tests/unit: -1", "tests: inf", "tests: nan"]
)
def test_other_lines_are_refused(line):
    with pytest.raises(LimitError, match="deadline"):
        parse_limits([line])


def test_no_deadline_is_a_deadline_of_nothing():
    assert parse_seconds(0) == 0.0


def test_the_files_of_a_run_are_removed_however_deep_they_lie(tmp_path):
    directory = tmp_path / "run"
    directory.mkdir()
    with open_directory(directory) as here:
        for _ in range(1200):
            os.mkdir("a", dir_fd=here)
            there = os.open("a", os.O_PATH, dir_fd=here)
            os.dup2(there, here)
            os.close(there)

    remove_files(directory)

    assert not directory.exists()


def test_files_that_cannot_be_removed_are_named(tmp_path, capfd):
    (tmp_path / "file").touch()

    remove_files(tmp_path / "file" / "run")

    assert f"files of this run are left: cannot remove {tmp_path}/file/run" in capfd.readouterr().err
