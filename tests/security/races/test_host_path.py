"""hostPath: another pod swaps the last name of a path while the agent checks it, or makes what is missing.

Links among the directories above are followed, as upstream does: `/var/run` is one on most machines. Who may write
there is trusted with what is made there.
"""

import pytest

from klet.testing.races.attacker import Decoy, Swap
from klet.volumes.plugins.host_path import check_host_path

NAME = "made"
TO_NOTHING = Swap(NAME, to="missing", plants=True)
TO_A_FILE = Swap(NAME, to="file", plants=True, decoys=(Decoy.LINK, Decoy.RELATIVE_LINK, Decoy.HARD_LINK))
TO_A_DIRECTORY = Swap(NAME, to="directory", plants=True)
PIPES = Swap(NAME, plants=True, decoys=(Decoy.PIPE,))
OTHERS = Swap(NAME, plants=True, decoys=(Decoy.DIRECTORY,))


class Maker:
    attempts = 1

    def __init__(self, arena, kind):
        self.arena = arena
        self.path = arena.inside / NAME
        self.kind = kind

    def prepare(self):
        self.arena.clear(NAME)

    def attempt(self):
        check_host_path(self.path, self.kind)
        return b""


class NaiveMaker(Maker):
    def attempt(self):
        if self.path.exists():
            return b""
        if self.kind == "FileOrCreate":
            self.path.open("ab").close()
            self.path.chmod(0o644)
        else:
            self.path.mkdir(exist_ok=True)
            self.path.chmod(0o755)
        return b""


@pytest.fixture(autouse=True)
def _sentinels(arena):
    arena.plant("file", "directory/")


@pytest.mark.parametrize("kind", ["DirectoryOrCreate", "FileOrCreate"])
def test_who_swaps_the_name_has_nothing_made_or_changed_elsewhere(arena, survives, kind):
    survives(lambda: Maker(arena, kind), TO_NOTHING, TO_A_FILE, TO_A_DIRECTORY, PIPES, OTHERS)


@pytest.mark.parametrize("kind", ["DirectoryOrCreate", "FileOrCreate"])
def test_a_naive_maker_is_broken(arena, breaks, kind):
    breaks(lambda: NaiveMaker(arena, kind), TO_NOTHING, TO_A_FILE, TO_A_DIRECTORY)


def test_a_naive_maker_waits_for_a_pipe(arena, breaks):
    assert "waited" in breaks(lambda: NaiveMaker(arena, "FileOrCreate"), PIPES)
