"""Inputs that crash, hang or take all memory are findings, and end nothing but a child."""

import ctypes
import os
import signal
import time
from contextlib import contextmanager

import pytest

from klet.testing.fuzz.corpus import FuzzFinding
from klet.testing.fuzz.isolated import (
    Guard,
    examine_isolated,
    judge_isolated,
    make_smaller_isolated,
    run_isolated,
)
from klet.testing.fuzz.mutators import amplify_bytes, change_bytes, choose_of
from klet.testing.fuzz.target import FuzzTarget, Limits, Recipe

GUARD = Guard(seconds=1, memory=256 << 20)
PATIENT = Guard(seconds=60, memory=256 << 20)
"""For what takes memory: a busy machine needs seconds to give that much."""


def target(run):
    @contextmanager
    def opened():
        yield run

    return FuzzTarget(
        name="t",
        summary="s",
        seeds=lambda: [b"seed"],
        mutate=choose_of((change_bytes,)),
        amplify=amplify_bytes(),
        opened=opened,
        limits=Limits(largest=8 << 10),
    )


def crash(data):
    if b"!" in data:
        ctypes.string_at(0)


def kill(data):
    if b"!" in data:
        os.kill(os.getpid(), signal.SIGKILL)


def hang(data):
    if b"!" in data:
        time.sleep(1000)


def devour(data):
    if b"!" in data:
        return len(bytearray(512 << 20))
    return 0


def leave(data):
    if b"!" in data:
        raise SystemExit(3)


def leave_at_once(data):
    if b"!" in data:
        os._exit(3)


@pytest.mark.parametrize(
    ("run", "guard", "flaw"),
    [
        (crash, PATIENT, "died of SIGSEGV"),
        (kill, PATIENT, "died of SIGKILL"),
        (hang, GUARD, "did not end within 1 s"),
        (devour, PATIENT, "took more than 256 MiB of memory"),
        (leave, PATIENT, "SystemExit at "),
        (leave_at_once, PATIENT, "ended the process with exit code 3"),
    ],
)
def test_what_an_input_does_to_the_process_is_its_flaw(run, guard, flaw):
    assert judge_isolated(target(run), b"a!b", guard).flaw.startswith(flaw)
    assert judge_isolated(target(run), b"ab", PATIENT).flaw == ""


def test_the_memory_of_the_parent_does_not_count():
    kept = b"x" * (GUARD.memory + (64 << 20))
    assert judge_isolated(target(len), b"ab", GUARD).flaw == "", len(kept)


def test_such_an_input_is_made_small():
    finding = FuzzFinding("died of SIGSEGV", b"abc!" * 20)
    assert make_smaller_isolated(target(crash), finding, GUARD).data == b"!"


def test_an_input_that_shows_nothing_alone_stays_as_it_is():
    finding = FuzzFinding("died of SIGSEGV", b"abc")
    assert make_smaller_isolated(target(crash), finding, GUARD) is finding


def test_an_exception_is_made_small_in_one_child():
    def run(data):
        if b"!" in data:
            raise LookupError

    shown = judge_isolated(target(run), b"abc!", GUARD)
    small = make_smaller_isolated(target(run), FuzzFinding(shown.flaw, b"abc!" * 20), GUARD)
    assert (small.flaw, small.data) == (shown.flaw, b"!")


def test_a_recipe_that_ends_the_process_is_a_finding():
    (finding,) = examine_isolated(target(crash), Recipe(b"", b"!"), GUARD)
    assert (finding.flaw, finding.recipe) == ("died of SIGSEGV", Recipe(b"", b"!"))


def test_the_cost_of_a_recipe_is_measured():
    def run(data):
        return [byte for byte in data for _ in data if byte == 0]

    (finding,) = examine_isolated(target(run), Recipe(b"", b"a"), Guard(seconds=20))
    assert "grow" in finding.flaw or "ran more than" in finding.flaw
    assert examine_isolated(target(len), Recipe(b"", b"a"), Guard(seconds=20)) == []


def test_a_long_answer_arrives_whole():
    assert run_isolated(lambda: b"x" * 1_000_000, seconds=20, memory=1 << 30).answer == b"x" * 1_000_000


def test_what_fails_in_the_child_is_said():
    def work():
        raise LookupError("this")

    ended = run_isolated(work, seconds=20, memory=1 << 30)
    assert ended.death == "ended the process with exit code 1"
    assert b"LookupError: this" in ended.answer
