"""Log lines as upstream writes them: klog text or JSON, with the record's data as key and value.

A flood of requests does not become a flood of lines: clients decide how often the server has to complain.
"""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Final

from klet.model.foreign_text import as_terminal_text, shorten
from klet.model.verbosity import verbosity_of

_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}
_LETTERS = {logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "F"}
INFO_LETTER: Final = "I"
_LONGEST_TRACE: Final = 64 * 1024
SUBJECT: Final = "klet.server"
REQUESTS: Final = "klet.server.requests"
"""Where a request that fails is logged with its trace: even an error of ours may be repeated by a client."""
MOST: Final = 20
WINDOW: Final = 10.0
"""Seconds in which so many lines with the same message are logged."""
_MOST_MESSAGES: Final = 256


class FloodFilter(logging.Filter):
    """Drops the lines of the server that repeat a message too often; the next one that passes counts them."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, _Seen] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not (record.name + ".").startswith(SUBJECT + "."):
            return True
        if record.levelno >= logging.ERROR and record.name != REQUESTS:
            return True
        seen = self._seen.get(record.msg)
        if seen is None or not 0 <= record.created - seen.since < WINDOW:
            if len(self._seen) >= _MOST_MESSAGES:
                self._seen.clear()
            if seen is not None and seen.count > MOST:
                record.dropped = seen.count - MOST
            seen = self._seen[record.msg] = _Seen(record.created)
        seen.count += 1
        return seen.count <= MOST


class _Seen:
    """How often a message came since an instant."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.count = 0


def record_data(record: logging.LogRecord) -> Mapping[str, object]:
    """Return what the caller gave as `extra`."""
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


class TextFormatter(logging.Formatter):
    """`I0102 15:04:05.000000   1234 file.py:12] "message" key="value"`."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, tz=UTC).astimezone()
        head = f"{_LETTERS.get(record.levelno, INFO_LETTER)}{at:%m%d %H:%M:%S.%f} {record.process or 0:>7}"
        data = "".join(f" {key}={_quoted(value)}" for key, value in record_data(record).items())
        line = f"{head} {record.filename}:{record.lineno}] {_quoted(record.getMessage())}{data}"
        # Paths, names and output come from outside, and a log is read on terminals.
        return as_terminal_text(f"{line}\n{_trace(self, record)}" if record.exc_info else line)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `ts` in milliseconds, `caller`, `msg`, `v` or `err`, then the data."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": round(record.created * 1000, 3),
            "caller": f"{PurePath(record.pathname).parent.name}/{record.filename}:{record.lineno}",
            "msg": shorten(record.getMessage()),
        }
        if record.levelno < logging.ERROR:
            line["v"] = verbosity_of(record.levelno)
        line.update({key: _bounded(value) for key, value in record_data(record).items()})
        if record.exc_info:
            line["stacktrace"] = _trace(self, record)
        return as_terminal_text(json.dumps(line, default=str, ensure_ascii=False))


def _quoted(value: object) -> str:
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return json.dumps(shorten(str(value)), ensure_ascii=False)


def _bounded(value: object) -> object:
    """Return the value itself, unless it is too long: then the beginning of its text."""
    if isinstance(value, bool | int | float) or value is None:
        return value
    if isinstance(value, list | tuple | dict):
        text = json.dumps(value, default=str, ensure_ascii=False)
        return value if shorten(text) is text else shorten(text)
    return shorten(str(value))


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return shorten(formatter.formatException(record.exc_info), _LONGEST_TRACE) if record.exc_info else ""
