"""emptyDir and what other volumes are built on: somebody who may write in the pod's directory swaps names meanwhile."""

import pytest

from klet.testing.mounts import NotedMounts
from klet.testing.races.attacker import Swap
from klet.volumes.host_mounter import HostMounter
from klet.volumes.media import IN_MEMORY
from klet.volumes.scratch import Scratch, ScratchDirectories

UID = "u-1"
PLUGIN = f"pods/{UID}/volumes/kubernetes.io~empty-dir"
MARKERS = f"pods/{UID}/plugins/kubernetes.io~empty-dir"
ALL = (
    Swap(f"pods/{UID}", to="pod"),
    Swap(f"pods/{UID}/volumes", to="pod/volumes"),
    Swap(PLUGIN, to="pod/volumes/kubernetes.io~empty-dir"),
    Swap(f"{PLUGIN}/scratch", to="pod/volumes/kubernetes.io~empty-dir/scratch", plants=True),
    Swap(MARKERS, to="empty"),
    Swap(f"{MARKERS}/scratch", to="empty"),
    Swap(f"{MARKERS}/scratch/ready", to="empty/missing", plants=True),
)


class Maker:
    attempts = 1

    def __init__(self, arena, mounter):
        self.arena = arena
        self.directories = ScratchDirectories(mounter=mounter)
        self.medium = IN_MEMORY if isinstance(mounter, HostMounter) else ""
        self.path = arena.inside / PLUGIN / "scratch"
        self.marker = arena.inside / MARKERS / "scratch/ready"

    def prepare(self):
        (self.arena.stage / PLUGIN).mkdir(parents=True, exist_ok=True)
        (self.arena.stage / MARKERS / "scratch").mkdir(parents=True, exist_ok=True)
        self.arena.move_in("pods")

    def attempt(self):
        self.directories.set_up(Scratch(path=self.path, marker=self.marker, medium=self.medium))
        return b""


class Remover(Maker):
    def prepare(self):
        for name in (f"{PLUGIN}/scratch/sub", f"{MARKERS}/scratch"):
            (self.arena.stage / name).mkdir(parents=True, exist_ok=True)
            (self.arena.stage / name / "file").touch()
        self.arena.move_in("pods")

    def attempt(self):
        self.directories.tear_down(self.path, self.marker)
        return b""


class MakerInMemory(Maker):
    def attempt(self):
        try:
            return super().attempt()
        finally:
            self.directories.tear_down(self.path, self.marker)


class NaiveMaker(Maker):
    attempts = 20

    def attempt(self):
        self.path.mkdir(parents=True, exist_ok=True)
        if self.path.resolve() == self.path:
            self.path.chmod(0o777)
        return b""


@pytest.fixture(autouse=True)
def _sentinels(arena):
    arena.plant("pod/volumes/kubernetes.io~empty-dir/scratch/sub/file", "empty/")


@pytest.mark.parametrize("victim", [Maker, Remover])
def test_who_swaps_names_has_nothing_changed_elsewhere(arena, survives, victim):
    survives(lambda: victim(arena, NotedMounts()), *ALL)


def test_who_swaps_names_has_nothing_mounted_elsewhere(arena, survives):
    survives(lambda: MakerInMemory(arena, HostMounter()), *ALL, mounts=True)


def test_a_naive_maker_is_broken(arena, breaks):
    assert "mode" in breaks(lambda: NaiveMaker(arena, NotedMounts()), *ALL[:4])
