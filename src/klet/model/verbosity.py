"""klog's verbosity levels as levels of Python's logging: one scale for `-v`, `--vmodule` and every line.

A line of level n is shown from `-v n` on. 0 is always shown, 2 is steady-state information, 3 names changes, 4 helps
debugging, 5 traces, and from 6 on there is a line for every request. `logger.debug` is 4, `logger.info` is 0.
"""

import logging
from typing import Final

HIGHEST: Final = 10
"""A higher verbosity shows nothing more."""
_DEBUG: Final = 4


def level_of(verbosity: int) -> int:
    """Return the level of the lines that this verbosity begins to show."""
    verbosity = min(max(verbosity, 0), HIGHEST)
    return logging.INFO - verbosity if verbosity < _DEBUG else logging.DEBUG + _DEBUG - verbosity


def verbosity_of(level: int) -> int:
    """Return from which verbosity on lines of a level are shown."""
    if level >= logging.INFO:
        return 0
    return min(logging.INFO - level, _DEBUG) if level > logging.DEBUG else logging.DEBUG + _DEBUG - level


STEADY: Final = level_of(2)
"""What the agent does in its normal course."""
CHANGES: Final = level_of(3)
"""What was decided, what was written, what was asked of the agent."""
TRACE: Final = level_of(5)
"""Every event and every pass."""
REQUESTS: Final = level_of(6)
"""Every answered request to the API server and to the runtime: what, how it ended, how long it took."""
REQUEST_STARTS: Final = level_of(7)
"""Every request as it is sent, for one that is never answered."""
