"""The last words of a container: what it left in its termination message file, or else the end of its log."""

from pathlib import PurePosixPath
from typing import Protocol

from msgspec import Struct

from klet.errors import KletError
from klet.runtime import labels
from klet.wire import cri_v1_pb2 as cri

FALLBACK_TO_LOGS = "FallbackToLogsOnError"
MAX_MESSAGE = 4096
MAX_LOG_LINES = 80
MAX_LOG = 2048
# What the runtime says of a container that never came to run: it has no log.
_CANNOT_RUN = "ContainerCannotRun"


class LeftFiles(Protocol):
    """Reads files of ended containers, without making anybody else wait for a slow disk."""

    async def end_of_file(self, path: str, *, limit: int) -> bytes | None:
        """The last bytes of a file, or None if there is none."""
        ...

    async def end_of_log(self, path: str, *, lines: int, limit: int) -> bytes:
        """The last lines of a container log, without their time stamps."""
        ...


class LastWords(Struct, frozen=True):
    """Where to look for a container's last words."""

    file: str = ""
    log: str = ""
    """Looked at only if the file says nothing; empty if it is not to be looked at."""


def find_last_words(status: cri.ContainerStatus) -> LastWords:
    """Say where the last words of a container are."""
    if status.state != cri.CONTAINER_EXITED:
        return LastWords()
    path = status.annotations.get(labels.TERMINATION_MESSAGE_PATH, "")
    wanted = str(PurePosixPath("/") / path) if path else ""
    hosts = (mount.host_path for mount in status.mounts if wanted and mount.container_path == wanted)
    policy = status.annotations.get(labels.TERMINATION_MESSAGE_POLICY, "")
    has_log = policy == FALLBACK_TO_LOGS and status.exit_code != 0 and status.reason != _CANNOT_RUN
    return LastWords(file=next(hosts, ""), log=status.log_path if has_log else "")


async def read_last_words(files: LeftFiles, where: LastWords) -> str:
    """The text; a file that cannot be read is told in its place."""
    if where.file:
        try:
            data = await files.end_of_file(where.file, limit=MAX_MESSAGE)
        except KletError as error:
            return f"Error on reading termination log {where.file}: {error}"
        if data:
            return data.decode("utf-8", "replace")
    if not where.log:
        return ""
    try:
        return (await files.end_of_log(where.log, lines=MAX_LOG_LINES, limit=MAX_LOG)).decode("utf-8", "replace")
    except KletError as error:
        return f"Error on reading termination message from logs: {error}"
