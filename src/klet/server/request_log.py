"""What aiohttp logs about requests, in klet's form: nonsense from a client is one line, a bug keeps its trace."""

import logging
import re
from typing import Final

from aiohttp.http_exceptions import HttpProcessingError

LONGEST_ERROR: Final = 200
_OWN_BYTES: Final = re.compile(r":?\n|:? b?['\"]")
"""Where aiohttp's complaints go on with the request's own bytes. They may be a token: none of them is logged."""


class RequestErrorFilter(logging.Filter):
    """Logs a request that is not HTTP in one line: its traceback would only show where aiohttp noticed."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if isinstance(error, HttpProcessingError):
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
            record.msg, record.args, record.exc_info = "Request refused: it is not HTTP as the API speaks it", (), None
            record.error = _OWN_BYTES.split(error.message)[0][:LONGEST_ERROR]
        return True


def request_logger() -> logging.Logger:
    """Return the logger that aiohttp is given."""
    logger = logging.getLogger("klet.server.requests")
    if not any(isinstance(each, RequestErrorFilter) for each in logger.filters):
        logger.addFilter(RequestErrorFilter())
    return logger
