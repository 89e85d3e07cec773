"""Container logs: a pod with a hostPath of the log directory swaps names while logs are read, linked and removed."""

import asyncio
from contextlib import aclosing, closing

import pytest

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.logs.file import LogFile
from klet.logs.reader import read_logs
from klet.logs.render import LogOptions
from klet.logs.tail import read_end
from klet.model.pods import PodUID
from klet.runtime.log_files import LogDirectory, LogFiles
from klet.testing.races.attacker import Decoy, Swap

POD = "default_web_u-1"
LINKS = "containers"
LINK = "web.log"
LOG = f"{POD}/main/0.log"
LINE = b"2030-01-01T00:00:00.000000000Z stdout F ours\n"
UNDER_POD = Swap(POD)
UNDER_CONTAINER = Swap(f"{POD}/main", to="main")
LOG_FILE = Swap(LOG, to="main/0.log")
PIPES = Swap(LOG, decoys=(Decoy.PIPE, Decoy.DIRECTORY))
ALL = (UNDER_POD, UNDER_CONTAINER, LOG_FILE, PIPES)
TURNS = 50
MANY = 100


class LogVictim:
    attempts = 1

    def __init__(self, arena):
        self.arena = arena
        self.log = arena.inside / LOG
        self.runner = asyncio.Runner()
        self.files = LogFiles(logs=arena.inside, links=arena.inside / LINKS, threads=Threads(limit=1))

    def prepare(self):
        staged = self.arena.stage / POD / "main"
        staged.mkdir(parents=True, exist_ok=True)
        for name in ("0.log", "0.log.20300101-000000"):
            (staged / name).write_bytes(LINE)
        self.arena.move_in(POD)


class Reader(LogVictim):
    """What `kubectl logs` does."""

    attempts = MANY

    def attempt(self):
        return self.runner.run(self.read())

    async def read(self):
        async def is_running():
            return False

        pieces = read_logs(self.log, LogOptions(), is_running=is_running, clock=SystemClock())
        async with aclosing(pieces):
            return b"".join([piece async for piece in pieces])


class EndReader(LogVictim):
    """What a container's termination message are taken from."""

    attempts = MANY

    def attempt(self):
        return read_end(self.log, lines=80, limit=2048)


class Follower(LogVictim):
    """What `kubectl logs -f` does at the end of a file that is rotated, or that the attacker makes look so."""

    attempts = MANY

    def attempt(self):
        read = b""
        with closing(LogFile.open(self.log)) as file:
            for _ in range(TURNS):
                read += file.read()
                file.check_rotation(0.0)
        return read


class LogRemover(LogVictim):
    def attempt(self):
        self.runner.run(self.files.remove_log(str(self.log)))
        return b""


class DirectoryRemover(LogVictim):
    def attempt(self):
        self.runner.run(self.files.remove_directory(LogDirectory(PodUID("u-1"), POD)))
        return b""


class Linker(LogVictim):
    attempts = MANY

    def prepare(self):
        super().prepare()
        (self.arena.stage / LINKS).mkdir(exist_ok=True)
        self.arena.move_in(LINKS)

    def attempt(self):
        self.runner.run(self.link())
        return b""

    async def link(self):
        await self.files.link(LINK, str(self.log))
        for name in await self.files.dangling_links():
            await self.files.unlink(name)
        await self.files.unlink(LINK)


class NaiveReader(LogVictim):
    attempts = MANY

    def attempt(self):
        if not self.log.resolve().is_relative_to(self.arena.inside) or not self.log.is_file():
            return b""
        return self.log.read_bytes()


class NaiveFollower(LogVictim):
    attempts = MANY

    def attempt(self):
        read = b""
        for _ in range(TURNS):
            if not self.log.is_symlink() and self.log.is_file():
                read += self.log.read_bytes()
        return read


class NaiveLogRemover(LogVictim):
    def attempt(self):
        directory = self.log.parent
        if directory.resolve().is_relative_to(self.arena.inside):
            for path in sorted(directory.glob(f"{self.log.name}*")):
                path.unlink()
        return b""


class NaiveDirectoryRemover(LogVictim):
    """It runs without privileges: nothing but the arena is its own to remove."""

    def attempt(self):
        top = self.arena.inside / POD
        if top.is_symlink():
            return b""
        for directory in sorted(top.iterdir()):
            if directory.is_symlink():
                continue
            for path in sorted(directory.iterdir()):
                path.unlink()
            directory.rmdir()
        return b""


class NaiveLinker(Linker):
    def attempt(self):
        links = self.arena.inside / LINKS
        if not links.is_symlink():
            (links / LINK).unlink(missing_ok=True)
            (links / LINK).symlink_to(self.log)
        return b""


@pytest.fixture(autouse=True)
def _sentinels(arena):
    arena.plant("main/0.log", "main/0.log.20300101-000000", "links/")


LINKING = (Swap(LINKS, to="links"), Swap(f"{LINKS}/{LINK}", to="main/0.log", plants=True), *ALL)


@pytest.mark.parametrize("victim", [Reader, EndReader, Follower, LogRemover, DirectoryRemover])
def test_who_swaps_names_of_logs_shows_and_loses_nothing_else(arena, survives, victim):
    survives(lambda: victim(arena), *ALL)


def test_who_swaps_the_directory_of_links_has_none_made_elsewhere(arena, survives):
    survives(lambda: Linker(arena), *LINKING)


@pytest.mark.parametrize(
    ("victim", "swaps", "harm"),
    [
        pytest.param(NaiveReader, ALL[:3], "read", id="a reader that resolves the path first"),
        pytest.param(
            NaiveReader, (Swap(LOG, decoys=(Decoy.PIPE,)),), "waited", id="a reader that looks at the type first"
        ),
        pytest.param(NaiveFollower, ALL[:3], "read", id="a follower by name"),
        pytest.param(NaiveLogRemover, ALL[:3], "removed", id="a removal of a log"),
        pytest.param(NaiveDirectoryRemover, ALL[:3], "removed", id="a removal of a directory"),
        pytest.param(NaiveLinker, LINKING[:2], "links", id="a maker of links"),
    ],
)
def test_a_naive_one_is_broken(arena, breaks, victim, swaps, harm):
    assert harm in breaks(lambda: victim(arena), *swaps)
