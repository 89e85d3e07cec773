"""A volume that is given to a project with all in it, while somebody who may write there swaps names."""

import os
import stat

import pytest

from klet.host.project_marks import mark_tree
from klet.host.quotactl import ProjectMark
from klet.testing.races.attacker import Swap
from klet.volumes.volume_directories import open_volume

PROJECT = 1048577
MARKED = 0o751
PLUGIN = "pods/u-1/volumes/kubernetes.io~empty-dir"
VOLUME = f"{PLUGIN}/scratch"
ALL = (
    Swap("pods/u-1", to="pod"),
    Swap(PLUGIN, to="pod/volumes/kubernetes.io~empty-dir"),
    Swap(VOLUME, to="pod/volumes/kubernetes.io~empty-dir/scratch"),
    Swap(f"{VOLUME}/sub", to="pod/volumes/kubernetes.io~empty-dir/scratch/sub"),
    Swap(f"{VOLUME}/sub/file", to="pod/volumes/kubernetes.io~empty-dir/scratch/sub/file"),
)


class ModeMarks:
    """Marks what is given to the project by a mode that nothing else has, so that harm is seen."""

    def read_mark(self, opened):
        found = os.fstat(opened).st_mode
        return ProjectMark(PROJECT, inherits=stat.S_ISDIR(found)) if stat.S_IMODE(found) == MARKED else ProjectMark()

    def write_mark(self, opened, mark):
        assert mark.project == PROJECT
        os.fchmod(opened, MARKED)


class Marker:
    attempts = 1

    def __init__(self, arena):
        self.arena = arena
        self.path = arena.inside / VOLUME

    def prepare(self):
        for name in ("sub/below", "other"):
            (self.arena.stage / VOLUME / name).mkdir(parents=True, exist_ok=True)
        (self.arena.stage / VOLUME / "sub/file").touch()
        self.arena.move_in("pods")

    def attempt(self):
        with open_volume(self.path) as volume:
            mark_tree(volume, self.path, PROJECT, marks=ModeMarks())
        return b""


class NaiveMarker(Marker):
    attempts = 20

    def attempt(self):
        for directory, _, files in os.walk(self.path):
            os.chmod(directory, MARKED)  # noqa: PTH101  what naive code does
            for name in files:
                os.chmod(os.path.join(directory, name), MARKED)  # noqa: PTH101, PTH118  what naive code does
        return b""


@pytest.fixture(autouse=True)
def _sentinels(arena):
    arena.plant("pod/volumes/kubernetes.io~empty-dir/scratch/sub/file")


def test_who_swaps_names_has_nothing_marked_elsewhere(arena, survives):
    survives(lambda: Marker(arena), *ALL)


def test_a_naive_marker_is_broken(arena, breaks):
    assert "mode" in breaks(lambda: NaiveMarker(arena), *ALL)
