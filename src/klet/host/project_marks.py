"""Gives a directory with all in it to a project. It blocks.

The tree may belong to a pod that runs and changes it meanwhile. Every step is taken by descriptor; no link and no mount
is followed. What is neither a directory nor a regular file cannot be given away, and takes next to nothing.
"""

import logging
import os
from pathlib import Path
from typing import Final, Protocol

from klet.host.beneath import open_regular_in
from klet.host.errors import FileError
from klet.host.quotactl import ProjectMark
from klet.host.tree_usage import open_same_mount

logger = logging.getLogger(__name__)

MOST_ENTRIES: Final = 100_000
MOST_LEVELS: Final = 100


class Marks(Protocol):
    """Reads and writes the project of an open file or directory. Raises OSError."""

    def read_mark(self, opened: int) -> ProjectMark: ...

    def write_mark(self, opened: int, mark: ProjectMark) -> None: ...


class TreeTooLarge(FileError):
    """A tree that is too large to be given to a project."""


def mark_tree(root: int, path: Path, project: int, *, marks: Marks, most: int = MOST_ENTRIES) -> None:
    """Give an open directory and all in it to a project; raises TreeTooLarge before anything is changed.

    The directory itself comes after all in it: its mark says that the tree is done, whatever ends the process. What was
    made in it meanwhile comes last.
    """
    wanted = ProjectMark(project, inherits=True)
    if marks.read_mark(root) == wanted:
        return
    # A tree of which a part has another project is trouble for the pod: nothing can be renamed from one to the other.
    _TreePass(None, path, project, most).look_below(root)
    _TreePass(marks, path, project, 2 * most).look_below(root)
    marks.write_mark(root, wanted)
    _TreePass(marks, path, project, 2 * most).look_below(root)


class _TreePass:
    """One pass through a tree. Without marks it only looks how large it is."""

    def __init__(self, marks: Marks | None, path: Path, project: int, most: int) -> None:
        self._marks = marks
        self._path = path
        self._project = project
        self._left = most

    def look_below(self, directory: int, level: int = 0) -> None:
        if level > MOST_LEVELS:
            raise TreeTooLarge(f"{self._path} has more than {MOST_LEVELS} levels", path=self._path)
        with os.scandir(directory) as entries:
            for entry in entries:
                self._left -= 1
                if self._left < 0:
                    raise TreeTooLarge(f"{self._path} has too many files", path=self._path)
                if entry.is_dir(follow_symlinks=False):
                    self._look_at_directory(entry.name, directory, level)
                elif self._marks is not None and entry.is_file(follow_symlinks=False):
                    self._mark_file(self._marks, entry.name, directory)

    def _look_at_directory(self, name: str, parent: int, level: int) -> None:
        opened = open_same_mount(name, parent)
        if opened is None:
            return
        try:
            if self._marks is not None:
                # Before what is in it: what is made in it from now on belongs to the project.
                _write(self._marks, opened, ProjectMark(self._project, inherits=True))
            self.look_below(opened, level + 1)
        finally:
            os.close(opened)

    def _mark_file(self, marks: Marks, name: str, parent: int) -> None:
        try:
            opened = open_regular_in(parent, name, self._path)
        except FileError as error:
            # Gone, or something else by now.
            logger.debug("A file was not given to its project", extra={"volume": str(self._path), "error": str(error)})
            return
        try:
            _write(marks, opened, ProjectMark(self._project))
        except OSError as error:
            logger.debug("A file was not given to its project", extra={"volume": str(self._path), "error": str(error)})
        finally:
            os.close(opened)


def _write(marks: Marks, opened: int, wanted: ProjectMark) -> None:
    if marks.read_mark(opened) != wanted:
        marks.write_mark(opened, wanted)
