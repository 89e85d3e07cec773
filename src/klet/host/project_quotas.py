"""Project quotas of directories (upstream: fsquota): the kernel counts what they take, so that nobody has to walk them.

Each directory gets a project of its own, which is listed in `/etc/projects` and `/etc/projid` as upstream lists it. The
directory itself carries its number, so a later run of the agent finds it there. Nothing is limited, only counted.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.host.beneath import open_directory, split_end
from klet.host.errors import FileError, FileMissing, file_error
from klet.host.project_files import (
    FIRST_PROJECT,
    LAST_PROJECT,
    OpenProjectFiles,
    ProjectFilePaths,
    ProjectFilesBusy,
    ProjectTable,
    add_directory,
    drop_directory,
    open_project_files,
    read_project_files,
)
from klet.host.project_marks import Marks, TreeTooLarge, mark_tree
from klet.host.quotactl import ProjectMark, ProjectUsage
from klet.host.tree_usage import TreeUsage

logger = logging.getLogger(__name__)

T = TypeVar("T")

MOST: Final = 2**58 - 1
"""Bytes that a project may take: more than any filesystem has. Upstream sets the same on ext4."""
MOST_TRIED: Final = 10_000
"""Numbers that are in no file and yet in use, after which it is given up. XFS takes a while to forget one."""
PATIENCE: Final = timedelta(seconds=2)
"""How long to wait for another process that has the files."""
_TRY_AGAIN: Final = timedelta(milliseconds=100)
_ASSIGN: Final = "assign a project quota to"
_RELEASE: Final = "release the project quota of"


class ProjectKernel(Marks, Protocol):
    """The quota calls of the kernel, on an open directory. All but the first raise OSError."""

    def counts_projects(self, directory: int) -> bool: ...

    def usage(self, directory: int, project: int) -> ProjectUsage: ...

    def limit(self, directory: int, project: int, size: int) -> None: ...


class UseListed(Struct, frozen=True):
    """The project that the files list for the directory."""

    project: int


class ListMarked(Struct, frozen=True):
    """The project that the directory carries, which the files do not know."""

    project: int


class ChooseNew(Struct, frozen=True):
    """The first project that is free."""


ProjectChoice: TypeAlias = UseListed | ListMarked | ChooseNew


def choose_project(
    mark: ProjectMark, listed: int | None, taken: frozenset[int], *, above: ProjectMark
) -> ProjectChoice | None:
    """Say which project a directory gets; None if what the files say of it cannot be used.

    `above` is the mark of the directory that it lies in: what both have is somebody's project for all of the node.
    """
    if listed is not None:
        return UseListed(listed) if listed >= FIRST_PROJECT else None
    is_own = mark.inherits and mark.project >= FIRST_PROJECT and mark.project != above.project
    return ListMarked(mark.project) if is_own and mark.project not in taken else ChooseNew()


class HostProjectQuotas:
    """Gives directories projects, and reads what the kernel has counted for them."""

    def __init__(self, *, files: ProjectFilePaths, kernel: ProjectKernel, threads: Threads, clock: Clock) -> None:
        self._files = files
        self._kernel = kernel
        self._threads = threads
        self._clock = clock
        self._assigned: dict[_Identity, _Assigned] = {}
        self._lock = asyncio.Lock()

    async def assign(self, path: Path, *, depth: int) -> None:
        """Give a directory a project, unless its filesystem counts none; raises HostError.

        `depth`: how many of the path's last names pods may have a hand in.
        """
        place = _Place(path, depth)
        if await self._threads.run(self._is_settled, place):
            return
        project = await self._change_files(lambda files: self._list(files, place))
        try:
            identity = await self._threads.run(self._mark, place, project)
        except TreeTooLarge as error:
            logger.warning("A volume is not counted by a quota", extra={"volume": str(path), "error": str(error)})
            await self._change_files(lambda files: self._drop(files, place, project))
        except FileError:
            await self._change_files(lambda files: self._drop(files, place, project))
            raise
        else:
            self._forget(path)
            self._assigned[identity] = _Assigned(path, project)

    async def release(self, path: Path, *, depth: int) -> None:
        """Take its project from a directory, which may be gone; raises HostError."""
        known = self._forget(path)
        place = _Place(path, depth)
        if known is not None or await self._threads.run(self._is_listed, place):
            await self._change_files(lambda files: self._drop(files, place, known))

    def usage_of(self, directory: int) -> TreeUsage | None:
        """Return what the kernel has counted for an open directory; None if nobody gave it a project here.

        May be called on any thread.
        """
        try:
            found = self._assigned.get(_identify(directory))
            if found is None:
                return None
            with _readable(directory) as opened:
                if self._kernel.read_mark(opened) != ProjectMark(found.project, inherits=True):
                    return None
            counted = self._kernel.usage(directory, found.project)
        except OSError as error:
            # It is walked then, as upstream does.
            logger.debug("Project quota not read", extra={"error": str(error)})
            return None
        # The directory alone is one: without any, quotas were switched off meanwhile.
        return TreeUsage(used=counted.used, inodes=counted.inodes) if counted.inodes else None

    def _forget(self, path: Path) -> int | None:
        """Return the project that the directory had."""
        known = [identity for identity, assigned in self._assigned.items() if assigned.path == path]
        projects = [self._assigned.pop(identity).project for identity in known]
        return projects[0] if projects else None

    async def _change_files(self, change: "Callable[[OpenProjectFiles], T]") -> "T":
        """Have the files changed on a thread, as soon as nobody else does."""

        def run() -> T:
            with open_project_files(self._files) as files:
                return change(files)

        async with self._lock:
            until = self._clock.monotonic() + PATIENCE.total_seconds()
            while True:
                try:
                    return await self._threads.run(run)
                except ProjectFilesBusy:
                    if self._clock.monotonic() >= until:
                        raise
                await self._clock.sleep(_TRY_AGAIN)

    def _is_settled(self, place: "_Place") -> bool:
        """Return whether there is nothing to do: the directory has its project, or its filesystem has none."""
        with place.opened(_ASSIGN) as directory:
            if not self._kernel.counts_projects(directory):
                return True
            known = self._assigned.get(_identify(directory))
            return known is not None and self._kernel.read_mark(directory) == ProjectMark(known.project, inherits=True)

    def _is_listed(self, place: "_Place") -> bool:
        return read_project_files(self._files).project_of(place.path) is not None

    def _list(self, files: OpenProjectFiles, place: "_Place") -> int:
        """Return the project that a directory is to have, which the files know from here on."""
        table = files.table
        with place.opened(_ASSIGN) as directory:
            mark, above = self._kernel.read_mark(directory), self._read_mark_above(directory)
            match choose_project(mark, table.project_of(place.path), table.taken, above=above):
                case UseListed(project):
                    return project
                case ListMarked(project):
                    chosen = project
                case ChooseNew():
                    chosen = self._find_free(directory, table, place.path)
                case None:
                    raise FileError(
                        f"cannot {_ASSIGN} {place.path}: its project in {self._files.projects} is not one of volumes, "
                        f"which begin at {FIRST_PROJECT}",
                        path=place.path,
                    )
        files.write(add_directory(table, place.path, chosen))
        return chosen

    def _read_mark_above(self, directory: int) -> ProjectMark:
        above = os.open("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            return self._kernel.read_mark(above)
        finally:
            os.close(above)

    def _find_free(self, directory: int, table: ProjectTable, path: Path) -> int:
        taken, tried = table.taken, 0
        for project in range(FIRST_PROJECT, LAST_PROJECT + 1):
            if project in taken:
                continue
            if self._kernel.usage(directory, project).is_free:
                return project
            tried += 1
            if tried == MOST_TRIED:
                break
        raise FileError(f"cannot {_ASSIGN} {path}: no project is free", path=path)

    def _mark(self, place: "_Place", project: int) -> "_Identity":
        with place.opened(_ASSIGN) as directory:
            self._kernel.limit(directory, project, MOST)
            mark_tree(directory, place.path, project, marks=self._kernel)
            return _identify(directory)

    def _drop(self, files: OpenProjectFiles, place: "_Place", known: int | None) -> None:
        project = files.table.project_of(place.path) or known
        rest = drop_directory(files.table, place.path)
        if project is not None and project >= FIRST_PROJECT and project not in rest.taken:
            with place.opened_or_above(_RELEASE) as directory:
                if self._kernel.counts_projects(directory):
                    self._kernel.limit(directory, project, 0)
        files.write(rest)


class NoQuotas:
    """Nothing is counted by the kernel: the feature is off."""

    async def assign(self, path: Path, *, depth: int) -> None:
        pass

    async def release(self, path: Path, *, depth: int) -> None:
        pass

    def usage_of(self, directory: int) -> TreeUsage | None:  # noqa: ARG002 - the same for all of them
        return None


class _Identity(NamedTuple):
    device: int
    inode: int


class _Assigned(Struct, frozen=True):
    path: Path
    project: int


class _Place(Struct, frozen=True):
    """A directory, and how many of its path's last names pods may have a hand in."""

    path: Path
    depth: int

    @contextmanager
    def opened(self, action: str) -> Iterator[int]:
        """Yield a descriptor. What the kernel refuses while it is open is reported as this action's failure."""
        root, names = split_end(str(self.path), self.depth)
        with open_directory(root, *names, action=action) as found, self._reporting(action), _readable(found) as opened:
            yield opened

    @contextmanager
    def opened_or_above(self, action: str) -> Iterator[int]:
        """Yield a descriptor of the directory, or of the one that pods have no hand in: it has the same filesystem."""
        with ExitStack() as opened:
            try:
                yield opened.enter_context(self.opened(action))
            except FileMissing:
                root, _ = split_end(str(self.path), self.depth)
                above = opened.enter_context(open_directory(root, action=action))
                opened.enter_context(self._reporting(action))
                yield above

    @contextmanager
    def _reporting(self, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise file_error(action, self.path, error) from error


@contextmanager
def _readable(directory: int) -> Iterator[int]:
    """Open the same directory for calls that a mere place in the tree (O_PATH) does not allow."""
    opened = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        yield opened
    finally:
        os.close(opened)


def _identify(opened: int) -> _Identity:
    found = os.fstat(opened)
    return _Identity(found.st_dev, found.st_ino)
