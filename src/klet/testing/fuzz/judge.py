"""Runs one input and reports which rule its result breaks. These rules hold for every target.

Only subclasses of KletError are raised, the length of their texts is bounded for every input, and no input takes much
processor time. Memory and growth are measured apart (`growth.py`): that takes longer than to run.
"""

import signal
import threading
import traceback
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from types import FrameType

from msgspec import Struct

from klet.errors import KletError
from klet.testing.fuzz.target import Flaw, Limits, Run

_SHOWN = 300


class InputVerdict(Struct, frozen=True):
    """What came of one input: a word for it, and the flaw if there is one."""

    outcome: Hashable
    flaw: str = ""
    detail: str = ""


class Overdue(BaseException):
    """The processor time of one input is up. Not an Exception: no handler on the way may catch it."""


def judge(run: Run, data: bytes, limits: Limits) -> InputVerdict:
    """Run the input."""
    try:
        with time_limit(limits.seconds):
            return InputVerdict(run(data))
    except KletError as error:
        return _judge_error(error, limits)
    except Flaw as flaw:
        return InputVerdict("flaw", flaw=str(flaw), detail=_story(flaw))
    except Overdue:
        flaw_text = f"took more than {limits.seconds:g} s of processor time"
        return InputVerdict("overdue", flaw=flaw_text)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever comes out is the finding, also what would end the process
        return InputVerdict("error", flaw=f"{type(error).__name__} at {_place(error)}", detail=_story(error))


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise Overdue after so much processor time; on another thread than the main one there is no limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, _overdue)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _overdue(_number: int, _frame: FrameType | None) -> None:
    raise Overdue


def _judge_error(error: KletError, limits: Limits) -> InputVerdict:
    place = _place(error)
    text = str(error)
    if len(text) > limits.text:
        flaw = f"an error of more than {limits.text} characters at {place}"
        return InputVerdict("error", flaw=flaw, detail=f"{len(text)} characters: {text[:_SHOWN]}")
    return InputVerdict((type(error).__name__, place))


def _place(error: BaseException) -> str:
    """Return the innermost line of klet that the error came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/klet/" in frame.filename and "/klet/testing/" not in frame.filename]
    frame = (ours or frames)[-1]
    return f"{frame.filename.rpartition('/klet/')[2]}:{frame.lineno} in {frame.name}"


def _story(error: BaseException) -> str:
    lines = traceback.format_exception(error)
    return "".join(lines[-6:])[-4000:]
