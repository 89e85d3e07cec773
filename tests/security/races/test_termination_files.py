"""Termination messages and hosts files: somebody who may write beside them swaps names while they are made and read."""

import asyncio
import stat

import pytest

from klet.aio.threads import Threads
from klet.logs.termination_files import TerminationFileReader
from klet.runtime.pod_files import HOSTS, PodFiles
from klet.testing.builders import make_container, make_pod
from klet.testing.races.arena import TOKEN
from klet.testing.races.attacker import Decoy, Swap

UID = "u-1"
POD = make_pod("main", uid=UID, name="web")
MAIN = make_container("main")
FILE = f"pods/{UID}/containers/main/1234"
LIMIT = 4096
WAY = (
    Swap(f"pods/{UID}"),
    Swap(f"pods/{UID}/containers", to="containers"),
    Swap(f"pods/{UID}/containers/main", to="containers/main"),
    Swap("default_web_u-1"),
    Swap("default_web_u-1/main", to="empty"),
)
TO_A_FILE = Swap(FILE, to="containers/main/1234")
MADE = Swap(f"pods/{UID}/containers/main/*", to="containers/main/1234")
HOSTS_FILE = Swap(f"pods/{UID}/{HOSTS}", to=HOSTS, plants=True)
PIPES = Swap(FILE, decoys=(Decoy.PIPE, Decoy.DIRECTORY))
LARGE = Swap(FILE, to="large", decoys=(Decoy.HARD_LINK,))
READING = (*WAY[:3], TO_A_FILE, PIPES, LARGE)


class FileVictim:
    attempts = 100

    def __init__(self, arena):
        self.arena = arena
        self.file = arena.inside / FILE
        self.runner = asyncio.Runner()
        threads = Threads(limit=1)
        self.pod_files = PodFiles(root=arena.inside, logs=arena.inside, cluster_domain="", threads=threads)
        self.termination_files = TerminationFileReader(root=arena.inside, threads=threads)

    def prepare(self):
        staged = self.arena.stage / "pods" / UID / "containers/main"
        staged.mkdir(parents=True, exist_ok=True)
        (staged / "1234").write_bytes(b"ours")
        self.arena.move_in("pods")


class Maker(FileVictim):
    def attempt(self):
        self.runner.run(self.make())
        return b""

    async def make(self):
        await self.pod_files.prepare_pod(POD)
        await self.pod_files.prepare_container(POD, MAIN, pod_ips=("192.0.2.1",))


class Reader(FileVictim):
    def attempt(self):
        read = self.runner.run(self.termination_files.read_tail(str(self.file), limit=LIMIT)) or b""
        return TOKEN if len(read) > LIMIT else read


class NaiveMaker(FileVictim):
    def attempt(self):
        directory = self.file.parent
        if directory.resolve().is_relative_to(self.arena.inside):
            made = directory / "made"
            made.touch()
            made.chmod(0o666)
        return b""


class NaiveReader(FileVictim):
    def attempt(self):
        found = self.file.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > LIMIT:
            return b""
        read = self.file.read_bytes()
        return TOKEN if len(read) > LIMIT else read


@pytest.fixture(autouse=True)
def _sentinels(arena):
    arena.plant("containers/main/1234", HOSTS, "large", "empty/")
    (arena.outside / "large").write_bytes(b"-" * (LIMIT + 1))


def test_who_swaps_names_has_no_file_made_elsewhere(arena, survives):
    survives(lambda: Maker(arena), *WAY, MADE, HOSTS_FILE)


def test_who_swaps_the_file_shows_nothing_else_and_nothing_long(arena, survives):
    survives(lambda: Reader(arena), *READING)


def test_a_naive_maker_is_broken(arena, breaks):
    breaks(lambda: NaiveMaker(arena), *WAY[:3])


@pytest.mark.parametrize(
    ("swaps", "harm"),
    [
        pytest.param((*WAY[:3], TO_A_FILE), "read", id="by a link"),
        pytest.param((LARGE,), "read", id="by its size"),
        pytest.param((Swap(FILE, decoys=(Decoy.PIPE,)),), "waited", id="by a pipe"),
    ],
)
def test_a_naive_reader_is_broken(arena, breaks, swaps, harm):
    assert harm in breaks(lambda: NaiveReader(arena), *swaps)
