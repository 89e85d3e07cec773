"""subPath: a container that shares a volume swaps names in it while another container starts."""

import asyncio
import itertools
from pathlib import Path

import pytest

from klet.aio.threads import Threads
from klet.host.mounts import bind
from klet.model.pods import PodUID
from klet.runtime.config.sub_paths import BoundSubPaths
from klet.testing.races.attacker import Decoy, Swap

UID = PodUID("u-1")
IN_VOLUME = (
    Swap("volume/a"),
    Swap("volume/a/part", to="part"),
    Swap("volume/a/part", to="part/file", decoys=(Decoy.LINK, Decoy.PIPE, Decoy.DIRECTORY)),
)
BOUND = f"kubelet/pods/{UID}/volume-subpaths"
IN_POD = (
    Swap(f"kubelet/pods/{UID}", to="pod"),
    Swap(BOUND, to="pod/volume-subpaths"),
    Swap(f"{BOUND}/data", to="pod/volume-subpaths/data"),
    Swap(f"{BOUND}/data/main", to="pod/volume-subpaths/data/main"),
    Swap(f"{BOUND}/data/main/0", to="pod/volume-subpaths/data/main/0"),
)


class Starter:
    """Starts a container that mounts a part of a volume."""

    attempts = 20

    def __init__(self, arena, *, path="a/part"):
        self.arena = arena
        self.volume = arena.inside / "volume"
        self.path = path
        self.numbers = itertools.count()
        self.runner = asyncio.Runner()
        self.sub_paths = BoundSubPaths(root=arena.inside / "kubelet", threads=Threads(limit=1))

    def prepare(self):
        (self.arena.stage / "volume/a/part").mkdir(parents=True, exist_ok=True)
        self.arena.move_in("volume")

    def attempt(self):
        return self.runner.run(self.start())

    async def start(self):
        try:
            target = await self.sub_paths.prepare(UID, "main", 0, volume="data", root=str(self.volume), path=self.path)
            return seen_at(Path(target))
        finally:
            await self.sub_paths.clean(UID)


class NaiveStarter(Starter):
    """Resolves the path, finds it in the volume, and binds it by its name."""

    def attempt(self):
        part = self.volume / self.path
        if not part.resolve().is_relative_to(self.volume):
            return b""
        # What is mounted goes with the namespace: unmounting takes too long for a race.
        target = self.arena.stage / f"target-{next(self.numbers)}"
        target.mkdir()
        bind(part, target)
        return seen_at(target)


class NaiveBinder(Starter):
    """Binds by descriptor, but to a place that it has found by name."""

    def attempt(self):
        target = self.arena.inside / BOUND / "data/main/0"
        target.mkdir(parents=True, exist_ok=True)
        if target.resolve() == target:
            bind(self.arena.stage, target)
        return b""


def seen_at(target: Path) -> bytes:
    if target.is_file():
        return target.read_bytes()
    return b"".join(path.read_bytes() for path in sorted(target.rglob("*")) if path.is_file())


@pytest.fixture(autouse=True)
def _sentinels(arena):
    arena.plant("part/file", "pod/volume-subpaths/data/main/0/")


@pytest.mark.parametrize("path", ["a/part", "a/part/made"])
def test_who_swaps_names_in_the_volume_gets_no_other_part(arena, survives, path):
    survives(lambda: Starter(arena, path=path), *IN_VOLUME, mounts=True)


def test_who_swaps_names_in_the_directory_of_the_pod_has_nothing_mounted_elsewhere(arena, survives):
    survives(lambda: Starter(arena), *IN_POD, mounts=True)


def test_a_naive_start_is_broken(arena, breaks):
    assert "read" in breaks(lambda: NaiveStarter(arena), *IN_VOLUME[:2], mounts=True)


def test_a_naive_bind_is_broken(arena, breaks):
    assert "mounted" in breaks(lambda: NaiveBinder(arena), *IN_POD, mounts=True)
