"""Plays the system calls of a program on the model disk, and checks every state that a loss of power may leave."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct

from klet.testing.power_cuts.disk import DirectoryNode, Disk, FileNode, NameChange, Node, State
from klet.testing.power_cuts.trace import SystemCall, descriptor_of, text_of

OUTPUT: Final = 1
ACKNOWLEDGED: Final = b"ack "
IGNORED: Final = "-shm"
"""SQLite's shared memory: it is mapped, and made again after a crash."""


class PowerCut(Struct, frozen=True):
    """The power goes after a call; the program had reported so many writes as done."""

    call: int
    acknowledged: int
    state: State


class Replay:
    """The disk of a program that works below one directory."""

    def __init__(self, root: Path) -> None:
        self._root = PurePosixPath(root)
        self.disk = Disk()
        self.acknowledged = 0
        self._open: dict[int, Node] = {}
        self._offsets: dict[int, int] = {}

    def play(self, call: SystemCall) -> bool:
        """Play one call; return whether it changed anything."""
        arguments = call.arguments
        match call.name:
            case "openat":
                return self._open_file(call)
            case "write" if descriptor_of(arguments[0]) == OUTPUT:
                data = text_of(arguments[1])
                if data.startswith(ACKNOWLEDGED):
                    self.acknowledged = int(data.split()[1])
                return data.startswith(ACKNOWLEDGED)
            case "close":
                self._open.pop(descriptor_of(arguments[0]), None)
                return False
            case "mkdir" | "mkdirat" | "symlink" | "symlinkat" | "link" | "linkat":
                return self._add(call)
            case "rename" | "renameat" | "renameat2" | "unlink" | "unlinkat":
                return self._rename(call)
            case _:
                return self._use_open(call)

    def _use_open(self, call: SystemCall) -> bool:
        """Play a call on an open file."""
        arguments, number = call.arguments, descriptor_of(call.arguments[0])
        node = self._open.get(number)
        if call.name in {"fsync", "fdatasync"} and node is not None:
            node.sync()
            return True
        if not isinstance(node, FileNode):
            return False
        match call.name:
            case "write":
                node.write(self._offsets[number], text_of(arguments[1])[: call.result])
                self._offsets[number] += call.result
            case "pwrite64":
                node.write(int(arguments[3]), text_of(arguments[1])[: call.result])
            case "ftruncate":
                node.truncate(int(arguments[1]))
            case "lseek":
                self._offsets[number] = call.result
                return False
            case unknown:
                raise NotImplementedError(unknown)
        return True

    def _open_file(self, call: SystemCall) -> bool:
        path = self._place(call.arguments[0], call.arguments[1])
        if path is None:
            return False
        flags = call.arguments[2].split("|")
        node = self.disk.find(path)
        is_new = node is None
        if is_new and "O_CREAT" not in flags:
            return False
        if node is None:
            node = FileNode()
            self.disk.change(path, NameChange(added=path.name, node=node))
        elif "O_TRUNC" in flags and isinstance(node, FileNode):
            node.truncate(0)
        self._open[call.result], self._offsets[call.result] = node, 0
        return is_new or "O_TRUNC" in flags

    def _add(self, call: SystemCall) -> bool:
        """Play what gives a name to something."""
        arguments = call.arguments
        node: Node | None
        match call.name:
            case "mkdir":
                path, node = self._place("", arguments[0]), DirectoryNode()
            case "mkdirat":
                path, node = self._place(arguments[0], arguments[1]), DirectoryNode()
            case "symlink":
                path, node = self._place("", arguments[1]), FileNode(target=text_of(arguments[0]).decode())
            case "symlinkat":
                path, node = self._place(arguments[1], arguments[2]), FileNode(target=text_of(arguments[0]).decode())
            case _:
                raise NotImplementedError(call.name)
        if path is None:
            return False
        self.disk.change(path, NameChange(added=path.name, node=node))
        return True

    def _rename(self, call: SystemCall) -> bool:
        """Play what takes a name away."""
        arguments = call.arguments
        match call.name:
            case "rename":
                old, new = self._place("", arguments[0]), self._place("", arguments[1])
            case "renameat" | "renameat2":
                old, new = self._place(arguments[0], arguments[1]), self._place(arguments[2], arguments[3])
            case "unlink":
                old, new = self._place("", arguments[0]), None
            case _:
                old, new = self._place(arguments[0], arguments[1]), None
        if old is None:
            return False
        if new is None:
            self.disk.change(old, NameChange(removed=old.name))
            return True
        if old.parent != new.parent:
            raise NotImplementedError("a rename between directories")
        self.disk.change(new, NameChange(added=new.name, removed=old.name, node=self.disk.find(old)))
        return True

    def _place(self, directory: str, path: str) -> PurePosixPath | None:
        """Return a path relative to the root; None if it is elsewhere, or of no interest."""
        base = PurePosixPath(text_of(directory).decode() or "/")
        whole = base / text_of(path).decode()
        if not whole.is_relative_to(self._root) or whole.name.endswith(IGNORED):
            return None
        return whole.relative_to(self._root)


def find_cuts(root: Path, calls: Iterable[SystemCall]) -> Iterator[PowerCut]:
    """Yield every state that a loss of power after any of the calls may leave; equal ones once."""
    replay = Replay(root)
    seen: set[tuple[int, State]] = set()
    for number, call in enumerate(calls):
        if not replay.play(call):
            continue
        for state in replay.disk.states():
            if (replay.acknowledged, state) not in seen:
                seen.add((replay.acknowledged, state))
                yield PowerCut(number, replay.acknowledged, state)


def lay_out(state: State, directory: Path, *, root: Path) -> None:
    """Make a directory hold a state; absolute links below the root of the program lead into it."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for name, content in state:
        path = directory / name
        if content is None:
            path.mkdir()
        elif isinstance(content, str):
            path.symlink_to(content.replace(str(root), str(directory)))
        else:
            path.write_bytes(content)


def check_cuts(
    root: Path, calls: Iterable[SystemCall], *, directory: Path, read: Callable[[Path], int]
) -> tuple[int, list[str]]:
    """Read every state; return how many there are, and what is wrong with them.

    The program writes the numbers from 1 on, and `read` returns the number that it finds, or 0. It must find the last
    one that was reported as done, or the one that was under way.
    """
    wrong: list[str] = []
    count = 0
    for cut in find_cuts(root, calls):
        count += 1
        lay_out(cut.state, directory, root=root)
        try:
            found = read(directory)
        except Exception as error:  # noqa: BLE001 - whatever it is, the reader did not accept the state
            wrong.append(f"after call {cut.call}: {type(error).__name__}: {error}: {_show(cut.state)}")
            continue
        if found not in {cut.acknowledged, cut.acknowledged + 1}:
            done = f"{cut.acknowledged} was done"
            wrong.append(f"after call {cut.call}: {done}, and {found} is found: {_show(cut.state)}")
    return count, wrong


def _show(state: State) -> str:
    return ", ".join(
        f"{name}/"
        if content is None
        else f"{name} {content[:40]!r}" + (f"({len(content)})" if len(content) > 40 else "")
        for name, content in state
    )
