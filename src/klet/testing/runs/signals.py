"""Gives the programs under test the signals that they have in a shell's foreground.

A shell's background ignores SIGINT and SIGQUIT, nohup ignores SIGHUP, and programs inherit what is ignored or blocked.
"""

import signal
from types import FrameType
from typing import Final

# Python ignores these two itself, and `subprocess` undoes that in each program.
_OWN: Final = frozenset({signal.SIGPIPE, signal.SIGXFSZ})


def restore_signals() -> None:
    """Stop ignoring and blocking whatever signal the process was started to ignore or to block."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in sorted(signal.valid_signals() - _OWN):
        if signal.getsignal(number) is not signal.SIG_IGN:
            continue
        if number == signal.SIGINT:
            signal.signal(number, signal.default_int_handler)
        elif number == signal.SIGHUP:
            # nohup: the tests go on, while programs start with the default, since handlers do not survive an exec.
            signal.signal(number, _go_on)
        else:
            signal.signal(number, signal.SIG_DFL)


def _go_on(_number: int, _frame: FrameType | None) -> None:
    """Let a signal pass."""
