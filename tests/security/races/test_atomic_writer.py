"""Atomic writer volumes: a container writes in the volume while the agent writes, updates and removes it."""

import itertools
import os
import stat
from pathlib import Path

import pytest

from klet.testing.builders import NOW
from klet.testing.mounts import NotedMounts
from klet.testing.races.attacker import Decoy, Swap
from klet.testing.races.confined import OTHER_GROUP
from klet.volumes.atomic_writer import FileProjection, write_payload
from klet.volumes.ownership import Ownership, change_ownership
from klet.volumes.scratch import ScratchDirectories

VOLUME = "volume"
OLD = {"a": FileProjection(b"old", 0o644), "d/b": FileProjection(b"old", 0o644), "gone": FileProjection(b"old", 0o644)}
NEW = {"a": FileProjection(b"new", 0o600), "d/b": FileProjection(b"new", 0o600)}
SENTINELS = ("a", "gone", "d/b", "empty/", "pod/volumes/plugin/name/")
STAMPED = Swap(f"{VOLUME}/..2*")
NEW_STAMPED = Swap(f"{VOLUME}/..2*", to="empty")
INNER = Swap(f"{VOLUME}/..2*/d", to="empty")
LEAVES = Swap(f"{VOLUME}/..2*/*", to="a", decoys=(Decoy.LINK, Decoy.HARD_LINK, Decoy.PIPE))
LINKED = Swap(f"{VOLUME}/..2*/*", to="a")
DATA = Swap(f"{VOLUME}/..data*", plants=True)
SEEN = Swap(f"{VOLUME}/[adg]*", to="a")
IN_POD = "u-1/volumes/plugin/name"
ABOVE = (
    Swap("u-1", to="pod"),
    Swap("u-1/volumes", to="pod/volumes"),
    Swap("u-1/volumes/plugin", to="pod/volumes/plugin"),
    Swap(IN_POD, to="pod/volumes/plugin/name"),
)

needs_groups = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: run the tests as root")


class Writer:
    """Writes a volume of an earlier content, or an empty one."""

    attempts = 1

    def __init__(self, arena, *, is_update):
        self.arena = arena
        self.volume = arena.inside / VOLUME
        self.is_update = is_update

    def prepare(self):
        staged = self.arena.stage / VOLUME
        staged.mkdir(exist_ok=True)
        if self.is_update:
            write_payload(staged, OLD, now=NOW, own=lambda: None)
        self.arena.move_in(VOLUME)

    def attempt(self):
        write_payload(self.volume, NEW, now=NOW, own=self.own)
        return b""

    def own(self):
        """Nothing to do."""


class OwningWriter(Writer):
    def own(self):
        change_ownership(self.volume, Ownership(OTHER_GROUP, read_only=True))


class Remover(Writer):
    def attempt(self):
        ScratchDirectories(mounter=NotedMounts()).tear_down(self.volume, self.arena.stage / "marker/ready")
        return b""


class PodWriter(OwningWriter):
    """Writes a volume in the directory of a pod, where the attacker swaps what is above it."""

    attempts = 5

    def __init__(self, arena):
        super().__init__(arena, is_update=False)
        self.volume = arena.inside / IN_POD
        self.payloads = itertools.cycle((OLD, NEW))

    def prepare(self):
        (self.arena.stage / IN_POD).mkdir(parents=True, exist_ok=True)
        self.arena.move_in("u-1")

    def attempt(self):
        write_payload(self.volume, next(self.payloads), now=NOW, own=self.own)
        return b""


class NaivePodWriter(PodWriter):
    def attempt(self):
        if self.volume.resolve() == self.volume:
            (self.volume / "key").write_bytes(b"new")
        return b""


class NaiveWriter(Writer):
    attempts = 5
    numbers = itertools.count()

    def attempt(self):
        made = self.volume / f"..2030.{next(self.numbers)}"
        made.mkdir()
        made.chmod(0o755)
        for path, file in NEW.items():
            (made / path).parent.mkdir(parents=True, exist_ok=True)
            (made / path).write_bytes(file.data)
            (made / path).chmod(file.mode)
        return b""


class NaiveOwner(Writer):
    attempts = 20

    def attempt(self):
        for base, directories, files in os.walk(self.volume):
            for path in (Path(base) / name for name in (*directories, *files)):
                if not path.is_symlink():
                    os.chown(path, -1, OTHER_GROUP)
        return b""


class NaiveRemover(Writer):
    """It runs without privileges: nothing but the arena is its own to remove."""

    def attempt(self):
        walked = list(os.walk(self.volume, topdown=False))
        for path in [Path(base) / name for base, names, files in walked for name in (*names, *files)]:
            path.rmdir() if stat.S_ISDIR(path.lstat().st_mode) else path.unlink()
        return b""


@pytest.fixture(autouse=True)
def _sentinels(arena):
    arena.plant(*SENTINELS)


@pytest.mark.parametrize("is_update", [False, True], ids=["the first content", "an update"])
@pytest.mark.parametrize(
    ("victim", "swaps"),
    [
        pytest.param(Writer, (STAMPED, NEW_STAMPED, INNER, LEAVES, DATA, SEEN), id="writing"),
        # Every name below a volume is on one mount: a hard link leads to nothing but the volume.
        pytest.param(
            OwningWriter, (STAMPED, NEW_STAMPED, INNER, DATA, SEEN), id="writing for a group", marks=needs_groups
        ),
    ],
)
def test_who_swaps_names_in_a_volume_leads_no_file_out_of_it(arena, survives, victim, swaps, is_update):
    survives(lambda: victim(arena, is_update=is_update), *swaps)


def test_who_swaps_names_in_a_volume_has_nothing_else_removed(arena, survives):
    survives(lambda: Remover(arena, is_update=True), STAMPED, INNER, LEAVES, DATA)


@needs_groups
def test_who_swaps_names_above_a_volume_leads_no_file_elsewhere(arena, survives):
    survives(lambda: PodWriter(arena), *ABOVE)


def test_a_naive_writer_that_resolves_the_path_first_is_broken(arena, breaks):
    breaks(lambda: NaivePodWriter(arena), *ABOVE)


def test_a_naive_writer_is_broken(arena, breaks):
    breaks(lambda: NaiveWriter(arena, is_update=False), STAMPED, NEW_STAMPED, INNER, LEAVES, DATA, SEEN)


@needs_groups
def test_a_naive_change_of_owners_is_broken(arena, breaks):
    assert "gid" in breaks(lambda: NaiveOwner(arena, is_update=True), STAMPED, INNER, LINKED)


def test_a_naive_removal_is_broken(arena, breaks):
    assert "removed" in breaks(lambda: NaiveRemover(arena, is_update=True), STAMPED, INNER, LEAVES, DATA)
