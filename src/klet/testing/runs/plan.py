"""Which tests run together: the parts of a whole run, in stages.

Tests that use the machine itself run one after the other, the others beside them; the simulation takes every processor
and comes last. With arguments, which go to pytest, everything is one part.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

_APART: Final = ("security/races", "integration/host/test_cgroups_v2.py")
"""Begins the part beside. The races fork children that must have one thread, and gRPC gives them its own once a channel
is open; the other has a virtual machine, which nothing on this one disturbs."""
_BESIDE: Final = ("fuzz", "component", "unit")
"""In this order: the fuzzers fork too, in tests that come before their own gRPC."""
_LAST: Final = ("simulation",)
_ELSEWHERE: Final = ("machine",)
"""Run by scripts/vm."""


class PytestProcess(msgspec.Struct, frozen=True):
    """One process of pytest."""

    name: str
    arguments: tuple[str, ...]
    is_attended: bool = False
    """Its output goes straight to the terminal, and Ctrl-C on a terminal reaches it without us."""


class RunStage(msgspec.Struct, frozen=True):
    """Parts that run at the same time."""

    parts: tuple[PytestProcess, ...]


def plan_arguments(arguments: Sequence[str]) -> tuple[RunStage, ...]:
    return (RunStage((PytestProcess("tests", tuple(arguments), is_attended=True),)),)


def plan_whole(tests: Path) -> tuple[RunStage, ...]:
    """Return the stages of a run of everything; a directory that is new here is taken for one that uses the machine."""
    known = [directory.name for directory in sorted(tests.iterdir()) if has_tests(directory)]
    apart = [tests / name for name in _APART if (tests / name).exists()]
    beside = apart + [tests / name for name in _BESIDE if name in known]
    machine = [tests / name for name in known if name not in (*_BESIDE, *_LAST, *_ELSEWHERE)]
    last = [tests / name for name in known if name in _LAST]
    together = []
    if machine:
        together.append(PytestProcess("machine", (*map(str, machine), *(f"--ignore={path}" for path in apart))))
    if beside:
        together.append(PytestProcess("beside", tuple(map(str, beside))))
    stages = [RunStage(tuple(together))] if together else []
    return (*stages, *(RunStage((PytestProcess(path.name, (str(path),)),)) for path in last))


def has_tests(path: Path) -> bool:
    return path.is_dir() and next(path.rglob("test_*.py"), None) is not None
