"""Keeps a flood of requests from becoming a flood of log lines: clients decide how often the server has to complain."""

import logging
from typing import Final

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
