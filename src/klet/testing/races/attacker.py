"""The attacker: swaps names inside for links, pipes and hard links, holds that for a moment, and swaps them back.

It strikes: one name is looked for once and then swapped many times, with pauses of one length. A victim has to find
the right thing when it looks and the wrong one when it acts: the swap has to last, and so has the time between two.
It never follows a link itself: what happens outside is the victim's doing.
"""

import fnmatch
import os
import random
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from klet.host.errors import HostError
from klet.host.files import remove_entry
from klet.testing.races.arena import Arena
from klet.testing.races.swapper import exchange, move

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HOLDS: Final = (0, 0, 20, 200, 2000)
"""How long a swap lasts, in turns of an empty loop: a victim's gaps are of all lengths."""
_RESTS: Final = (20, 200, 1000, 4000)
"""And how long all is well again, so that a victim gets to its gap."""
_STRIKE: Final = 16
"""Swaps for one look."""


class Decoy(StrEnum):
    """What takes the place of the victim's file or directory."""

    LINK = "link"
    RELATIVE_LINK = "relative-link"
    HARD_LINK = "hard-link"
    PIPE = "pipe"
    DIRECTORY = "directory"


class Swap(msgspec.Struct, frozen=True):
    """One thing the attacker does: the names that it swaps, and what for."""

    path: str
    """Below the inside; every name may be a pattern."""
    decoys: tuple[Decoy, ...] = (Decoy.LINK, Decoy.RELATIVE_LINK)
    to: str = "."
    """The sentinel that links lead to."""
    plants: bool = False
    """Whether a plain name that is not there yet is taken, too."""


class Attacker:
    """Swaps names until it is stopped."""

    def __init__(self, *, arena: Arena, swaps: tuple[Swap, ...], seed: int) -> None:
        self._arena = arena
        self._swaps = swaps
        self._random = random.Random(seed)
        self.count = 0
        """How often it succeeded in swapping something."""

    def run(self, is_over: Callable[[], bool]) -> None:
        """Move as fast as it goes."""
        for number, pause in enumerate(self.moves()):
            for _ in range(pause):
                pass
            if number % _STRIKE == 0 and is_over():
                return

    def moves(self) -> Iterator[int]:
        """Move once, and say how long to pause before the next move, in turns of an empty loop. It never ends."""
        with _opened(self._arena.spare) as spare:
            while True:
                with suppress(OSError, HostError):  # the victim was faster
                    yield from self._strike(self._random.choice(self._swaps), spare)
                yield 0

    def _strike(self, swap: Swap, spare: int) -> Iterator[int]:
        """Swap one name again and again, until it is gone."""
        names = swap.path.split("/")
        hold, rest = self._random.choice(_HOLDS), self._random.choice(_RESTS)
        with self._parent(names) as parent:
            name = self._choose(parent, names[-1])
            decoy = self._decoy(swap, self._random.choice(swap.decoys), spare)
            for _ in range(_STRIKE):
                try:
                    exchange(name, decoy, first_in=parent, second_in=spare)
                except FileNotFoundError:
                    if not swap.plants:
                        raise
                    move(decoy, name, first_in=spare, second_in=parent)
                    yield hold
                    move(name, decoy, first_in=parent, second_in=spare)
                else:
                    yield hold
                    exchange(name, decoy, first_in=parent, second_in=spare)
                self.count += 1
                yield rest

    @contextmanager
    def _parent(self, names: list[str]) -> Iterator[int]:
        with ExitStack() as opened:
            here = os.open(self._arena.inside, _DIRECTORY)
            opened.callback(os.close, here)
            for pattern in names[:-1]:
                here = os.open(self._choose(here, pattern), _DIRECTORY, dir_fd=here)
                opened.callback(os.close, here)
            yield here

    def _choose(self, directory: int, pattern: str) -> str:
        if not set(pattern) & set("*?["):
            return pattern
        found = fnmatch.filter(sorted(os.listdir(directory)), pattern)
        if not found:
            raise FileNotFoundError(pattern)
        return self._random.choice(found)

    def _decoy(self, swap: Swap, kind: Decoy, spare: int) -> str:
        """Return the name of a decoy in the spare directory. One that was lost to the victim is made again."""
        name = f"{self._swaps.index(swap)}-{kind}"
        target = str(self._arena.outside / swap.to)
        if kind is Decoy.RELATIVE_LINK:
            target = "/".join([".."] * len(swap.path.split("/")) + [self._arena.outside.name, swap.to])
        if not _is_decoy(name, kind, target, spare):
            remove_entry(spare, name, self._arena.spare / name)
            _make_decoy(name, kind, target, spare)
        return name


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    found = os.open(directory, _DIRECTORY)
    try:
        yield found
    finally:
        os.close(found)


def _is_decoy(name: str, kind: Decoy, target: str, spare: int) -> bool:
    try:
        found = os.lstat(name, dir_fd=spare)
        match kind:
            case Decoy.LINK | Decoy.RELATIVE_LINK:
                return stat.S_ISLNK(found.st_mode) and os.readlink(name, dir_fd=spare) == target
            case Decoy.HARD_LINK:
                return os.path.samestat(found, os.lstat(target))
            case Decoy.PIPE:
                return stat.S_ISFIFO(found.st_mode)
            case Decoy.DIRECTORY:
                return stat.S_ISDIR(found.st_mode)
    except FileNotFoundError:
        return False


def _make_decoy(name: str, kind: Decoy, target: str, spare: int) -> None:
    match kind:
        case Decoy.LINK | Decoy.RELATIVE_LINK:
            os.symlink(target, name, dir_fd=spare)
        case Decoy.HARD_LINK:
            os.link(target, name, dst_dir_fd=spare)
        case Decoy.PIPE:
            os.mkfifo(name, 0o666, dir_fd=spare)
        case Decoy.DIRECTORY:
            os.mkdir(name, 0o755, dir_fd=spare)
