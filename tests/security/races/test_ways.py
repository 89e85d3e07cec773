"""The attacker of tests/security/races: each way in which it moves breaks a naive reader, and none a good one."""

import os

import pytest

from klet.testing.races.arena import open_arena
from klet.testing.races.attacker import Swap
from klet.testing.races.race import Way, choose_processors, race

SWAP = Swap("file", to="secret")


class Reader:
    attempts = 1000

    def __init__(self, arena):
        self.arena = arena
        self.file = arena.inside / "file"

    def prepare(self):
        (self.arena.stage / "file").write_bytes(b"ours")
        self.arena.move_in("file")

    def attempt(self):
        descriptor = os.open(self.file, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            return os.read(descriptor, 100)
        finally:
            os.close(descriptor)


class NaiveReader(Reader):
    def attempt(self):
        return b"" if self.file.is_symlink() else self.file.read_bytes()


@pytest.fixture
def arena():
    with open_arena() as arena:
        arena.plant("secret")
        yield arena


@pytest.mark.parametrize("way", Way)
def test_each_way_breaks_a_naive_reader(arena, way):
    outcome = race(arena, lambda: NaiveReader(arena), (SWAP,), seconds=10, seed=1, ways=(way,))
    assert outcome.harm == "a sentinel was read"
    assert outcome.seconds < 10


@pytest.mark.parametrize("way", Way)
def test_a_good_reader_survives_each_way(arena, way):
    outcome = race(arena, lambda: Reader(arena), (SWAP,), seconds=0.5, seed=1, ways=(way,))
    assert outcome.harm == ""
    assert min(outcome.done, outcome.refused, outcome.swaps) > 0


def test_one_seed_makes_one_interleaving():
    seen = []
    for _ in range(2):
        with open_arena() as arena:
            arena.plant("secret")
            outcome = race(arena, lambda: NaiveReader(arena), (SWAP,), seconds=10, seed=7, ways=(Way.INTERLEAVED,))
        seen.append((outcome.harm, outcome.done, outcome.refused, outcome.swaps))
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("allowed", "number", "chosen"),
    [({0, 1}, 0, (0, 1)), ({0, 1}, 7, (1, 0)), ({2, 5, 9}, 2, (9, 2)), ({3}, 5, (3, 3))],
)
def test_each_side_has_a_processor(allowed, number, chosen):
    assert choose_processors(allowed, number=number) == chosen
