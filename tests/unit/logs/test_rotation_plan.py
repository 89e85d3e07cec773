from datetime import UTC, datetime

import pytest

from klet.logs.rotation_plan import RotationPlan, plan_rotation

NOW = datetime(2030, 5, 6, 7, 8, 9, tzinfo=UTC)
NEW = "0.log.20300506-070809"


def rotated(*stamps):
    return [f"0.log.{stamp}" for stamp in stamps]


@pytest.mark.parametrize(
    ("found", "max_files", "remove", "compress"),
    [
        pytest.param([], 5, [], [], id="the first rotation"),
        pytest.param(
            rotated("00000000-000001", "00000000-000000.gz"),
            3,
            rotated("00000000-000000.gz"),
            rotated("00000000-000001"),
            id="upstream's case: the oldest goes, the newest is compressed",
        ),
        pytest.param(
            rotated("1", "2", "3", "4"), 2, rotated("1", "2", "3", "4"), [], id="two files: nothing else stays"
        ),
        pytest.param(
            rotated("4", "2", "3", "1"), 3, rotated("1", "2", "3"), rotated("4"), id="three files: the newest stays"
        ),
        pytest.param(rotated("1", "2", "3", "4"), 6, [], rotated("1", "2", "3", "4"), id="six files: all four stay"),
        pytest.param(rotated("1.gz", "2.gz"), 5, [], [], id="what is compressed is left alone"),
        pytest.param(
            rotated("1.tmp", "2.gz.tmp"), 5, rotated("1.tmp", "2.gz.tmp"), [], id="what a crash left is removed"
        ),
        pytest.param(
            rotated("1", "1.gz", "2"),
            5,
            rotated("1"),
            rotated("2"),
            id="a crash before the source was removed: it is compressed already",
        ),
        pytest.param(
            rotated("1", "1.tmp"), 5, rotated("1.tmp"), rotated("1"), id="a crash while it was compressed: again"
        ),
        pytest.param(rotated("1.tmp", "2", "3.gz"), 3, rotated("1.tmp", "2"), [], id="temporary files do not count"),
    ],
)
def test_what_becomes_of_rotated_files(found, max_files, remove, compress):
    plan = plan_rotation("0.log", found, max_files=max_files, now=NOW)
    assert plan == RotationPlan(remove=tuple(remove), compress=tuple(compress), rotated=NEW)


@pytest.mark.parametrize(
    ("taken", "name"),
    [
        pytest.param([NEW], "0.log.20300506-070810", id="rotated in this second already"),
        pytest.param([f"{NEW}.gz"], "0.log.20300506-070810", id="the clock was set back to one that is compressed"),
        pytest.param([NEW, "0.log.20300506-070810"], "0.log.20300506-070811", id="twice"),
        pytest.param(["0.log.20300506-0708090"], NEW, id="a longer name is another"),
        pytest.param(
            ["0.log.20300506-075959.gz", "0.log.20300506-080000"],
            "0.log.20300506-080001",
            id="the clock was set back: the newest still sorts last",
        ),
        pytest.param(["0.log.20291231-235959"], NEW, id="older ones change nothing"),
        pytest.param(["0.log.89999999-999999", "0.log.99991231-235959", "0.log.x"], NEW, id="names that are no times"),
        pytest.param(
            ["0.log.89999999-999999", "0.log.20400101-000000"],
            "0.log.20400101-000001",
            id="a time and one that is none",
        ),
    ],
)
def test_no_rotated_file_is_ever_replaced(taken, name):
    assert plan_rotation("0.log", taken, max_files=9, now=NOW).rotated == name


def test_the_newest_of_any_part_of_the_files_are_kept():
    """More files than one rotation looks at: what it keeps of a part holds all that is to be kept of the whole."""
    names = [f"0.log.{number:06}.gz" for number in range(100)]
    part = names[20:60]
    plan = plan_rotation("0.log", part, max_files=5, now=NOW)
    assert set(names[-3:]).isdisjoint(plan.remove)
    assert set(part) - set(plan.remove) == set(part[-3:])
