"""The files of container logs for the log manager: their sizes, removal, compression and renaming.

Others may write to log directories, so nothing in them is reached through a link, and what is no regular file is
neither opened nor compressed.
"""

import errno
import logging
import os
import stat
import threading
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.aio.threads import Threads
from klet.host.beneath import open_directory, open_regular_in, split_end
from klet.host.errors import FileError, FileMissing, file_error
from klet.host.files import removal_error
from klet.logs.rotation_plan import COMPRESSED, TEMPORARY, RotationPlan, plan_rotation

logger = logging.getLogger(__name__)

DEPTH: Final = 3
"""A log is `<pod>/<container>/<file>` below the directory of all logs."""
MOST_FILES: Final = 10_000
"""How many rotated files one rotation looks at. The newest of any of them are kept, so the next ones go on with the
rest."""
THREAD_NAME: Final = "klet-log-rotation"
_CHUNK: Final = 1 << 20
_GZIP: Final = 16 + zlib.MAX_WBITS
_LEVEL: Final = 6


class LogPlace(Struct, frozen=True):
    """Where a log is: the resolved directory of all logs, and the names below it."""

    root: Path
    pod: str
    container: str
    name: str

    @property
    def shown(self) -> Path:
        return self.root / self.pod / self.container / self.name


class LogProblem(Struct, frozen=True):
    """Why the size of a log is not known."""

    message: str
    is_missing: bool = False


class RotationStopped(FileError):
    """The agent ends while a file is being compressed."""


class RotatedLogFiles:
    """Logs on disk. Works in threads of its own: compression must not hold up others that read and write files."""

    def __init__(self, *, workers: int) -> None:
        self._threads = Threads(limit=workers + 1, name=THREAD_NAME)
        self._stopped = threading.Event()

    async def measure(self, paths: Collection[str]) -> Mapping[str, int | LogProblem]:
        return await self._threads.run(measure_logs, paths)

    async def tidy(self, path: str, *, max_files: int, now: datetime) -> str:
        plan = self._threads.run(tidy_rotated, path, max_files=max_files, now=now, is_stopped=self._stopped.is_set)
        return (await plan).rotated

    async def rename(self, path: str, name: str) -> None:
        await self._threads.run(rename_log, path, name)

    async def restore(self, path: str, name: str) -> bool:
        return await self._threads.run(restore_log, path, name)

    def close(self) -> None:
        """Wait for what is being done; a compression is given up."""
        self._stopped.set()
        self._threads.close()


def measure_logs(paths: Collection[str]) -> dict[str, int | LogProblem]:
    """Return the size of each log. One look at each: thousands of logs are measured in some hundredths of a second."""
    roots: dict[str, Path] = {}
    return {path: _measure(path, roots) for path in paths}


def list_rotated(path: str, *, limit: int = MOST_FILES) -> tuple[str, ...]:
    """Return the names of the rotated files of a log. What has such a name and is no file is removed: it is no log."""
    place = find_place(path)
    names: list[str] = []
    with _opened(place) as directory:
        for entry in islice(_entries(directory, f"{place.name}."), limit):
            if entry.is_file(follow_symlinks=False):
                names.append(entry.name)
            elif not entry.is_dir(follow_symlinks=False):
                logger.warning(
                    "Removed what had the name of a log", extra={"path": str(place.shown.parent / entry.name)}
                )
                _unlink(directory, entry.name, place)
    return tuple(names)


def tidy_rotated(
    path: str, *, max_files: int, now: datetime, is_stopped: Callable[[], bool], limit: int = MOST_FILES
) -> RotationPlan:
    """Remove and compress what is to be before a log is rotated; return the plan."""
    place = find_place(path)
    plan = plan_rotation(place.name, list_rotated(path, limit=limit), max_files=max_files, now=now)
    with _opened(place) as directory:
        for name in plan.remove:
            _unlink(directory, name, place)
        for name in plan.compress:
            _compress(directory, name, place, is_stopped)
    return plan


def rename_log(path: str, name: str) -> None:
    """Give the log another name in its directory. The runtime goes on writing to it until it opens a new one."""
    place = find_place(path)
    with _opened(place) as directory:
        try:
            if not stat.S_ISREG(os.lstat(place.name, dir_fd=directory).st_mode):
                raise FileError(f"cannot rotate {place.shown}: it is not a regular file", path=place.shown)
            os.rename(place.name, name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError as error:
            raise file_error("rename", place.shown, error) from error


def restore_log(path: str, name: str) -> bool:
    """Give the log its name back; False if there is another one by now, which is never replaced.

    A runtime that did not answer in time may have opened its new log all the same.
    """
    place = find_place(path)
    with _opened(place) as directory:
        try:
            # A rename would replace a new log without a word; a link does not.
            os.link(name, place.name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
        except FileExistsError:
            return False
        except OSError as error:
            raise file_error("rename back", place.shown, error) from error
        _unlink(directory, name, place)
    return True


def find_place(path: str) -> LogPlace:
    """Return where a log is; raises FileError for a path that is none."""
    root, (pod, container, name) = split_end(path, DEPTH)
    return LogPlace(root, pod, container, name)


def _measure(path: str, roots: dict[str, Path]) -> int | LogProblem:
    try:
        place = _find_place(path, roots)
        with open_directory(place.root, place.pod, place.container) as directory:
            found = os.lstat(place.name, dir_fd=directory)
    except (FileMissing, FileNotFoundError) as error:
        return LogProblem(str(error), is_missing=True)
    except (FileError, OSError) as error:
        return LogProblem(str(error))
    if not stat.S_ISREG(found.st_mode):
        return LogProblem(f"{path} is not a regular file")
    return found.st_size


def _find_place(path: str, roots: dict[str, Path]) -> LogPlace:
    """Return where a log is. The directory of all logs is resolved once."""
    above, names = path.rsplit("/", DEPTH)[0], path.split("/")[-DEPTH:]
    if above not in roots or ".." in names or "" in names:
        place = find_place(path)
        roots[above] = place.root
        return place
    return LogPlace(roots[above], *names)


@contextmanager
def _opened(place: LogPlace) -> Iterator[int]:
    """Open the directory of a log for changes. What is mounted there is not the runtime's."""
    with open_directory(place.root, place.pod, place.container, one_mount=True) as directory:
        yield directory


def _entries(directory: int, prefix: str) -> Iterator["os.DirEntry[str]"]:
    # A descriptor of its own: the one of a directory that was opened with O_PATH cannot be listed.
    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        with os.scandir(readable) as entries:
            for entry in entries:
                if entry.name.startswith(prefix):
                    yield entry
    finally:
        os.close(readable)


def _unlink(directory: int, name: str, place: LogPlace) -> None:
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise removal_error(place.shown.parent / name, error) from error


def _compress(directory: int, name: str, place: LogPlace, is_stopped: Callable[[], bool]) -> None:
    """Compress a file into `<name>.gz`. Only a whole one ever has that name; what a crash leaves ends in `.tmp`."""
    shown, temporary = place.shown.parent / name, name + TEMPORARY
    source = open_regular_in(directory, name, shown)
    try:
        target = open_regular_in(directory, temporary, shown, flags=os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            os.fchmod(target, stat.S_IMODE(os.fstat(source).st_mode))
            _copy_compressed(source, target, shown, is_stopped)
        finally:
            os.close(target)
        os.rename(temporary, name + COMPRESSED, src_dir_fd=directory, dst_dir_fd=directory)
    except (OSError, FileError) as error:
        with suppress(FileError):
            _unlink(directory, temporary, place)
        raise error if isinstance(error, FileError) else file_error("compress", shown, error) from error
    finally:
        os.close(source)
    _unlink(directory, name, place)


def _copy_compressed(source: int, target: int, shown: Path, is_stopped: Callable[[], bool]) -> None:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    while chunk := os.read(source, _CHUNK):
        if is_stopped():
            raise RotationStopped(f"cannot compress {shown}: the agent stops", path=shown, errno=errno.ECANCELED)
        _write_all(target, packer.compress(chunk))
    _write_all(target, packer.flush())


def _write_all(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
