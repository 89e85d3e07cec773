"""What part of a container's log a client asks for: read by the kubelet API, answered by the log reader."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class LogStream(StrEnum):
    """The stream a line was written to; `ALL` selects both."""

    ALL = "All"
    STDOUT = "Stdout"
    STDERR = "Stderr"


class LogQuery(Struct, frozen=True, kw_only=True):
    """What part of a log a client wants (PodLogOptions)."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    since_seconds: int | None = None
    since_time: datetime | None = None
    tail_lines: int | None = None
    limit_bytes: int | None = None
    stream: LogStream = LogStream.ALL
