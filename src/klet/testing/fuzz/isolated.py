"""Runs work in a child process: a crash, a hang or memory without end is then a result like any other.

Nothing of a target may have been opened before: gRPC and event loops do not survive a fork.
"""

import faulthandler
import os
import select
import signal
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from klet.aio.clock import SystemClock
from klet.testing.fuzz.corpus import FuzzFinding
from klet.testing.fuzz.engine import examine, make_smaller
from klet.testing.fuzz.judge import judge
from klet.testing.fuzz.minimise import minimise
from klet.testing.fuzz.target import FuzzTarget, Recipe

_LOOK: Final = 100
"""Milliseconds between two looks at a child."""
_PIECE: Final = 1 << 16
_FAILED: Final = 1
_SHOWN: Final = 4000
_PATIENCE: Final = 60.0
_LONGEST_EXAMINATION: Final = 600.0
_MOST_RUNS: Final = 300


class Guard(Struct, frozen=True, kw_only=True):
    """What ends a child."""

    seconds: int = 20
    """For one input, by the clock on the wall."""
    memory: int = 1 << 30
    """Bytes of memory in use at one time, beside those that the child has from its parent."""


class ChildExit(Struct, frozen=True):
    """How a child has ended: with an answer, or by what."""

    answer: bytes = b""
    death: str = ""


class ShownFlaw(Struct, frozen=True):
    """The flaw that an input shows; empty if it shows none."""

    flaw: str
    detail: str = ""
    is_death: bool = False
    """Whether it ends the process."""


def run_isolated(work: Callable[[], bytes], *, seconds: float, memory: int) -> ChildExit:
    """Run some work in a child; one that takes too long or too much is killed."""
    answers, to_answers = os.pipe()
    most = _resident(os.getpid()) + memory
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child uses no lock that a thread of ours could hold
        pid = os.fork()
    if pid == 0:
        os.close(answers)
        _live(work, to_answers)
    os.close(to_answers)
    answer, death = b"", "was interrupted"
    try:
        answer, death = _listen(pid, answers, seconds, most=most, too_much=_too_much(memory))
    finally:
        os.close(answers)
        if death:
            os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if not death and usage.ru_maxrss * 1024 > most:
        death = _too_much(memory)
    if not death and code < 0:
        death = f"died of {signal.Signals(-code).name}"
    if not death and code > 0:
        death = f"ended the process with exit code {code}"
    return ChildExit(answer, death)


def judge_isolated(target: FuzzTarget, data: bytes, guard: Guard) -> ShownFlaw:
    """Run one input in a child."""

    def work() -> bytes:
        with target.opened() as run:
            verdict = judge(run, data, target.limits)
        return msgspec.json.encode(ShownFlaw(verdict.flaw, verdict.detail))

    ended = run_isolated(work, seconds=guard.seconds, memory=guard.memory)
    if ended.death:
        return ShownFlaw(ended.death, ended.answer.decode(errors="replace"), is_death=True)
    return msgspec.json.decode(ended.answer, type=ShownFlaw)


def examine_isolated(target: FuzzTarget, recipe: Recipe, guard: Guard) -> list[FuzzFinding]:
    """Return what is wrong with a recipe."""

    def work() -> bytes:
        with target.opened() as run:
            return msgspec.json.encode(list(examine(run, recipe, target)))

    ended = run_isolated(work, seconds=_LONGEST_EXAMINATION, memory=guard.memory)
    if ended.death:
        data = recipe.make(target.limits.largest)[: target.limits.input_size]
        return [FuzzFinding(ended.death, data, ended.answer.decode(errors="replace"), recipe)]
    return msgspec.json.decode(ended.answer, type=list[FuzzFinding])


def make_smaller_isolated(target: FuzzTarget, finding: FuzzFinding, guard: Guard) -> FuzzFinding:
    """Return the finding with the smallest input that shows it, as far as it can be made small in a minute."""

    def work() -> bytes:
        with target.opened() as run:
            return msgspec.json.encode(make_smaller(run, finding, target.limits))

    shown = judge_isolated(target, finding.data, guard)
    if shown.flaw != finding.flaw:
        return finding  # what ran before has a part in it
    if shown.is_death:
        return _make_smaller_one_by_one(target, finding, guard)
    ended = run_isolated(work, seconds=_PATIENCE, memory=guard.memory)
    return finding if ended.death else msgspec.json.decode(ended.answer, type=FuzzFinding)


def _make_smaller_one_by_one(target: FuzzTarget, finding: FuzzFinding, guard: Guard) -> FuzzFinding:
    clock = SystemClock()
    deadline = clock.monotonic() + _PATIENCE

    def shows(data: bytes) -> bool:
        return clock.monotonic() < deadline and judge_isolated(target, data, guard).flaw == finding.flaw

    return FuzzFinding(finding.flaw, minimise(finding.data, shows, most=_MOST_RUNS), finding.detail)


def _listen(pid: int, answers: int, seconds: float, *, most: int, too_much: str) -> tuple[bytes, str]:
    """Return what the child says until it ends, or why it has to be ended."""
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    poll = select.poll()
    poll.register(answers, select.POLLIN)
    answer = bytearray()
    while True:
        if poll.poll(_LOOK):
            piece = os.read(answers, _PIECE)
            if not piece:
                return bytes(answer), ""
            answer += piece
        if clock.monotonic() >= deadline:
            return bytes(answer), f"did not end within {seconds:g} s"
        if _resident(pid) > most:
            return bytes(answer), too_much


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0  # it has just ended
    return pages * os.sysconf("SC_PAGESIZE")


def _too_much(memory: int) -> str:
    return f"took more than {memory >> 20} MiB of memory"


def _live(work: Callable[[], bytes], answers: int) -> None:
    """Run the child, which must never return into its parent's code."""
    code = _FAILED
    faulthandler.disable()  # what a child dies of is said once
    try:
        answer = memoryview(work())
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the parent reports it
        answer = memoryview(traceback.format_exc()[-_SHOWN:].encode())
    try:
        while answer:
            answer = answer[os.write(answers, answer) :]
    finally:
        os._exit(code)
