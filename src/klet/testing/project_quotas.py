"""A kernel that counts projects, on a filesystem that does not."""

import errno
import os
from pathlib import Path

from klet.host.quotactl import ProjectMark, ProjectUsage


class FakeProjectKernel:
    """Keeps the marks and limits of projects; what they take is what a test says, and one inode for each mark."""

    def __init__(self) -> None:
        self.is_on = True
        self.refuses_marks = False
        self.refuses_usage = False
        self.limits: dict[int, int] = {}
        self.used: dict[int, int] = {}
        self.written: list[str] = []
        """The names of what was marked, in order."""
        self._marks: dict[tuple[int, int], tuple[Path, ProjectMark]] = {}

    def counts_projects(self, directory: int) -> bool:
        os.fstat(directory)
        return self.is_on

    def read_mark(self, opened: int) -> ProjectMark:
        known = self._marks.get(_identify(os.fstat(opened)))
        return known[1] if known is not None else ProjectMark()

    def write_mark(self, opened: int, mark: ProjectMark) -> None:
        if self.refuses_marks:
            raise _refusal()
        path = Path(f"/proc/self/fd/{opened}").readlink()
        self.written.append(path.name)
        self._marks[_identify(os.fstat(opened))] = (path, mark)

    def usage(self, directory: int, project: int) -> ProjectUsage:
        os.fstat(directory)
        if self.refuses_usage:
            raise _refusal()
        return ProjectUsage(
            used=self.used.get(project, 0),
            inodes=sum(
                mark.project == project for identity, (path, mark) in self._marks.items() if _is(path, identity)
            ),
            has_limits=self.limits.get(project, 0) > 0,
        )

    def limit(self, directory: int, project: int, size: int) -> None:
        os.fstat(directory)
        self.limits[project] = size


def _refusal() -> OSError:
    return PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def _identify(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _is(path: Path, identity: tuple[int, int]) -> bool:
    """Return whether what was marked is still there."""
    try:
        return _identify(path.lstat()) == identity
    except FileNotFoundError:
        return False
