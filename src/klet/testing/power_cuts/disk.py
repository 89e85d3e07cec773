"""A disk that forgets what was not synced. Pure.

POSIX promises little: what a file holds is safe after fsync of the file, and that it has its name after fsync of the
directory. Before that each change may be on the disk or not, in any order, and data may be there in part, or as zeros.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import combinations
from pathlib import PurePosixPath
from typing import Final, TypeAlias

FEW: Final = 6
"""Of so many changes every selection is tried; of more only some."""


class Fate(StrEnum):
    """What became of data that was not synced."""

    LOST = "lost"
    KEPT = "kept"
    TORN = "torn"
    """Of the last write only the first half is there."""
    ZEROED = "zeroed"
    """The file has its length, and zeros in place of the data: ext4 and XFS do that."""
    LAST_LOST = "last lost"
    FIRST_LOST = "first lost"
    """The disk wrote in another order."""


@dataclass(slots=True, eq=False)
class FileNode:
    """A regular file, or a symbolic link if it has a target."""

    synced: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes at an offset that were not synced; without data the file was cut to that length."""
    target: str = ""

    def write(self, offset: int, data: bytes) -> None:
        self.pending.append((offset, data))

    def truncate(self, size: int) -> None:
        self.pending.append((size, None))

    def sync(self) -> None:
        self.synced, self.pending = self.content(), []

    def content(self, fate: Fate = Fate.KEPT) -> bytes:
        return _apply(self.synced, _select(self.pending, fate))


@dataclass(slots=True, eq=False)
class DirectoryNode:
    """A directory: names, as they were synced, and the changes since."""

    synced: dict[str, "Node"] = field(default_factory=dict)
    pending: list["NameChange"] = field(default_factory=list)

    def names(self, changes: Iterable["NameChange"] | None = None) -> dict[str, "Node"]:
        names = dict(self.synced)
        for change in self.pending if changes is None else changes:
            if change.removed:
                names.pop(change.removed, None)
            if change.added:
                assert change.node is not None
                names[change.added] = change.node
        return names

    def sync(self) -> None:
        self.synced, self.pending = self.names(), []


Node: TypeAlias = FileNode | DirectoryNode


@dataclass(frozen=True, slots=True, eq=False)
class NameChange:
    """A name that was added, removed, or both at once by a rename: that is never there in part."""

    added: str = ""
    removed: str = ""
    node: Node | None = None


State: TypeAlias = tuple[tuple[str, bytes | str | None], ...]
"""What a disk holds, by path: the content of files, the target of links, None for directories."""


class Disk:
    """All files below one directory."""

    def __init__(self) -> None:
        self.root = DirectoryNode()

    def find(self, path: PurePosixPath) -> Node | None:
        node: Node | None = self.root
        for part in path.parts:
            node = node.names().get(part) if isinstance(node, DirectoryNode) else None
        return node

    def directory(self, path: PurePosixPath) -> DirectoryNode:
        found = self.find(path)
        if not isinstance(found, DirectoryNode):
            raise TypeError(f"{path} is no directory")
        return found

    def change(self, path: PurePosixPath, change: NameChange) -> None:
        self.directory(path.parent).pending.append(change)

    def states(self) -> Iterator[State]:
        """Yield the states that the loss of power may leave now, each once."""
        seen: set[State] = set()
        directories = list(_directories(self.root))
        changes = [(directory, change) for directory in directories for change in directory.pending]
        for kept in _selections(changes):
            for fate in Fate:
                state = tuple(_walk(self.root, kept, fate, prefix=""))
                if state not in seen:
                    seen.add(state)
                    yield state


def _directories(root: DirectoryNode) -> Iterator[DirectoryNode]:
    """Yield every directory that may be there: also below names that are gone already, or not synced yet."""
    yield root
    below = [*root.synced.values(), *(change.node for change in root.pending)]
    for node in dict.fromkeys(node for node in below if isinstance(node, DirectoryNode)):
        yield from _directories(node)


Placed: TypeAlias = tuple[DirectoryNode, NameChange]


def _selections(changes: Sequence[Placed]) -> Iterator[frozenset[NameChange]]:
    """Yield which changes of names reached the disk."""
    every = [change for _, change in changes]
    if len(every) <= FEW:
        for count in range(len(every) + 1):
            yield from map(frozenset, combinations(every, count))
        return
    for count in range(len(every) + 1):
        yield frozenset(every[:count])
    for change in every:
        yield frozenset(every) - {change}


def _walk(
    directory: DirectoryNode, kept: frozenset[NameChange], fate: Fate, *, prefix: str
) -> Iterator[tuple[str, bytes | str | None]]:
    names = directory.names(change for change in directory.pending if change in kept)
    for name, node in sorted(names.items()):
        path = f"{prefix}{name}"
        if isinstance(node, DirectoryNode):
            yield path, None
            yield from _walk(node, kept, fate, prefix=f"{path}/")
        else:
            yield path, node.target or node.content(fate)


def _select(pending: Sequence[tuple[int, bytes | None]], fate: Fate) -> Iterator[tuple[int, bytes | None]]:
    last = len(pending) - 1
    for index, (offset, data) in enumerate(pending):
        match fate:
            case Fate.LOST:
                return
            case Fate.KEPT:
                yield offset, data
            case Fate.TORN:
                yield offset, data[: len(data) // 2] if data is not None and index == last else data
            case Fate.ZEROED:
                yield offset, bytes(len(data)) if data is not None else None
            case Fate.LAST_LOST:
                if index < last:
                    yield offset, data
            case Fate.FIRST_LOST:
                if index > 0:
                    yield offset, data


def _apply(content: bytes, writes: Iterable[tuple[int, bytes | None]]) -> bytes:
    result = bytearray(content)
    for offset, data in writes:
        if len(result) < offset:
            result.extend(bytes(offset - len(result)))
        if data is None:
            del result[offset:]
        else:
            result[offset : offset + len(data)] = data
    return bytes(result)
