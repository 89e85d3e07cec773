"""The termination message of a container: its file, or else the end of its log (upstream: getTerminationMessage)."""

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
# The runtime's reason for a container that never ran: it has no log.
_CANNOT_RUN = "ContainerCannotRun"


class TerminationFiles(Protocol):
    """Reads files of ended containers; a slow disk delays nothing else."""

    async def read_tail(self, path: str, *, limit: int) -> bytes | None:
        """Return the last bytes of a file; None if there is none."""
        ...

    async def read_log_tail(self, path: str, *, lines: int, limit: int) -> bytes:
        """Return the last lines of a container log, without their time stamps."""
        ...


class MessageLocation(Struct, frozen=True):
    """Where the termination message of a container may be."""

    file: str = ""
    log: str = ""
    """Read only if the file is empty; empty if it must not be read."""


def find_termination_message(status: cri.ContainerStatus) -> MessageLocation:
    """Return where the termination message of a container may be."""
    if status.state != cri.CONTAINER_EXITED:
        return MessageLocation()
    path = status.annotations.get(labels.TERMINATION_MESSAGE_PATH, "")
    wanted = str(PurePosixPath("/") / path) if path else ""
    hosts = (mount.host_path for mount in status.mounts if wanted and mount.container_path == wanted)
    policy = status.annotations.get(labels.TERMINATION_MESSAGE_POLICY, "")
    has_log = policy == FALLBACK_TO_LOGS and status.exit_code != 0 and status.reason != _CANNOT_RUN
    return MessageLocation(file=next(hosts, ""), log=status.log_path if has_log else "")


async def read_termination_message(files: TerminationFiles, where: MessageLocation) -> str:
    """Return the text, or the error if the file cannot be read."""
    if where.file:
        try:
            data = await files.read_tail(where.file, limit=MAX_MESSAGE)
        except KletError as error:
            return f"Error on reading termination log {where.file}: {error}"
        if data:
            return data.decode("utf-8", "replace")
    if not where.log:
        return ""
    try:
        return (await files.read_log_tail(where.log, lines=MAX_LOG_LINES, limit=MAX_LOG)).decode("utf-8", "replace")
    except KletError as error:
        return f"Error on reading termination message from logs: {error}"
