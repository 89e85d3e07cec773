"""Directories of pods: somebody who may write in one swaps names while it is removed."""

import os
import stat
from pathlib import Path

import pytest

from klet.host.beneath import remove_below
from klet.testing.races.attacker import Swap
from klet.volumes.orphans import remove_orphan

UID = "u-1"
FILES = ("containers/main/1234", "plugins/p/v/ready", "etc-hosts")
LEFT = ("volumes/plugin/name/sub", "volumes/plugin/other")
SENTINELS = ("main/1234", "p/v/ready", "etc-hosts", "plugin/name/sub/", "plugin/other/", "name/sub/", "v/c/0", "c/0")
TOP = Swap(UID)
FIRST = Swap(f"{UID}/*")
SECOND = Swap(f"{UID}/*/*", to="plugin")
SUB_PATHS = Swap(f"{UID}/volume-subpaths/*", to="v")
CONTAINERS = Swap(f"{UID}/volume-subpaths/*/*", to="c")
VOLUMES = Swap(f"{UID}/volumes/*/*", to="name")
PLUGIN = Swap(f"{UID}/volumes/*", to="plugin")
ALL = (FIRST, SECOND, SUB_PATHS, CONTAINERS, VOLUMES)


class Remover:
    attempts = 1

    def __init__(self, arena):
        self.arena = arena
        self.pods = arena.inside
        self.pod = arena.inside / UID

    def prepare(self):
        staged = self.arena.stage / UID
        for name in LEFT:
            (staged / name).mkdir(parents=True, exist_ok=True)
        for name in (*FILES, "volume-subpaths/v/c/0"):
            (staged / name).parent.mkdir(parents=True, exist_ok=True)
            (staged / name).touch()
        self.arena.move_in(UID)

    def attempt(self):
        remove_below(self.pods, UID)
        return b""


class OrphanRemover(Remover):
    def attempt(self):
        remove_orphan(self.pod, UID)
        return b""


class NaiveRemover(Remover):
    """It runs without privileges: nothing but the arena is its own to remove."""

    def attempt(self):
        walked = list(os.walk(self.pod, topdown=False))
        for path in [Path(base) / name for base, names, files in walked for name in (*names, *files)]:
            path.rmdir() if stat.S_ISDIR(path.lstat().st_mode) else path.unlink()
        return b""


class NaiveEmptyRemover(Remover):
    """Removes nothing but empty directories, and yet those of somebody else."""

    def attempt(self):
        found = [Path(base) / name for base, names, _ in os.walk(self.pod / "volumes") for name in names]
        for path in reversed(found):
            path.rmdir()
        return b""


@pytest.fixture(autouse=True)
def _sentinels(arena):
    arena.plant(*SENTINELS)


@pytest.mark.parametrize("victim", [Remover, OrphanRemover])
def test_who_swaps_names_in_it_has_nothing_else_removed(arena, survives, victim):
    survives(lambda: victim(arena), *ALL)


@pytest.mark.parametrize("victim", [Remover, OrphanRemover])
def test_who_swaps_the_directory_itself_has_nothing_else_removed(arena, survives, victim):
    survives(lambda: victim(arena), TOP)


@pytest.mark.parametrize(("victim", "swaps"), [(NaiveRemover, ALL), (NaiveEmptyRemover, (PLUGIN, VOLUMES))])
def test_a_naive_removal_is_broken(arena, breaks, victim, swaps):
    assert "removed" in breaks(lambda: victim(arena), *swaps)
