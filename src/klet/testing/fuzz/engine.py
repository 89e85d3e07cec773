"""The loop of a fuzzer: take an input of the corpus, change it, run it, keep it if it reached new code.

One seed makes one sequence of inputs from the target's own ones, on every machine: no measurement decides about the
next input. What is kept from before (`corpus.py`) comes first when it is given.
"""

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any, Final, Protocol

from msgspec import Struct

import klet
from klet.testing.fuzz.corpus import FuzzFinding
from klet.testing.fuzz.growth import find_growth
from klet.testing.fuzz.judge import judge
from klet.testing.fuzz.minimise import minimise
from klet.testing.fuzz.target import FuzzTarget, Limits, Recipe, Run

GROWTH_EVERY: Final = 250
"""So many inputs are run for each whose growth is measured, which takes as long as hundreds of them."""
MOST_FINDINGS: Final = 20
_NEW_ONES: Final = 0.3
"""How often one of the newest inputs is taken."""
_NEWEST: Final = 16
_HOME: Final = str(Path(klet.__file__).parent) + "/"
_TESTING: Final = f"{_HOME}testing/"


class LineCoverage:
    """The lines seen so far, of the code under test alone."""

    def __init__(self, homes: tuple[str, ...] = (_HOME,), besides: tuple[str, ...] = (_TESTING,)) -> None:
        self._homes = homes
        self._besides = besides
        # By id: to hash a code object costs as much as all of its constants.
        self._unseen: dict[int, set[int]] = {}
        self._codes: list[CodeType] = []
        self._seen = 0
        self._is_fresh = False

    @property
    def seen(self) -> int:
        """How many lines."""
        return self._seen

    def take_fresh(self) -> bool:
        """Return whether a line was seen for the first time since the last question."""
        fresh, self._is_fresh = self._is_fresh, False
        return fresh

    @contextmanager
    def watching(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> Any:
        unseen = self._unseen.get(id(frame.f_code))
        if unseen is None:
            unseen = self._learn(frame.f_code)
        return self._follow if unseen else None

    def _follow(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            unseen = self._unseen[id(frame.f_code)]
            if frame.f_lineno in unseen:
                unseen.discard(frame.f_lineno)
                self._seen += 1
                self._is_fresh = True
        return self._follow

    def _learn(self, code: CodeType) -> set[int]:
        path = code.co_filename
        is_ours = path.startswith(self._homes) and not path.startswith(self._besides)
        # The line of the definition is no line that runs.
        lines = {line for _, _, line in code.co_lines() if line is not None and line != code.co_firstlineno}
        self._codes.append(code)
        self._unseen[id(code)] = found = lines if is_ours else set()
        return found


class CorpusStore(Protocol):
    """Where inputs and findings outlive the run."""

    def load(self) -> list[bytes]: ...

    def keep(self, data: bytes) -> None: ...

    def save(self, finding: FuzzFinding, /) -> Path | None: ...


class FuzzProgress(Struct, frozen=True, kw_only=True):
    """How far a fuzzer is."""

    executions: int
    measured: int
    """Inputs whose growth was measured."""
    corpus: int
    lines: int = 0
    """Of klet, that were reached; atheris counts edges of byte code."""
    edges: int = 0
    findings: tuple[FuzzFinding, ...]


class Fuzzer:
    """Fuzzes one target."""

    def __init__(self, *, target: FuzzTarget, seed: int, keeper: CorpusStore, growth_every: int = GROWTH_EVERY) -> None:
        self._target = target
        self._seed = seed
        self._keeper = keeper
        self._growth_every = growth_every
        self._random = Random(f"{target.name} {seed}")
        self._coverage = LineCoverage()
        self._outcomes: set[Hashable] = set()
        self._inputs: list[bytes] = []
        self._findings: dict[str, FuzzFinding] = {}
        self._executions = 0
        self._measured = 0

    @property
    def progress(self) -> FuzzProgress:
        return FuzzProgress(
            executions=self._executions,
            measured=self._measured,
            corpus=len(self._inputs),
            lines=self._coverage.seen,
            findings=tuple(self._findings.values()),
        )

    def run(self, *, is_over: Callable[[FuzzProgress], bool]) -> FuzzProgress:
        """Run inputs until it is over, or so much was found that more says nothing."""
        with self._target.opened() as run:
            for data in self._next_inputs():
                self._execute(run, data)
                if self._executions % self._growth_every == 0:
                    self._measure(run)
                if len(self._findings) >= MOST_FINDINGS or is_over(self.progress):
                    break
        return self.progress

    def _next_inputs(self) -> Iterator[bytes]:
        kept = self._keeper.load()
        yield from self._target.seeds()
        yield from kept
        while True:
            is_new = self._random.random() < _NEW_ONES
            parent = self._random.choice(self._inputs[-_NEWEST:] if is_new else self._inputs)
            yield self._target.mutate(self._random, parent, self._inputs)[: self._target.limits.input_size]

    def _execute(self, run: Run, data: bytes) -> None:
        self._executions += 1
        with self._coverage.watching():
            verdict = judge(run, data, self._target.limits)
        is_new = self._coverage.take_fresh() or verdict.outcome not in self._outcomes
        if is_new or not self._inputs:
            self._outcomes.add(verdict.outcome)
            self._inputs.append(data)
            self._keeper.keep(data)
        if verdict.flaw and verdict.flaw not in self._findings:
            self._found(make_smaller(run, FuzzFinding(verdict.flaw, data, verdict.detail), self._target.limits))

    def _measure(self, run: Run) -> None:
        self._measured += 1
        recipe = choose_recipe(self._target, self._inputs, seed=self._seed, number=self._measured)
        for finding in examine(run, recipe, self._target):
            if finding.flaw not in self._findings:
                self._found(finding)

    def _found(self, finding: FuzzFinding) -> None:
        self._findings[finding.flaw] = finding
        self._keeper.save(finding)


def choose_recipe(target: FuzzTarget, inputs: Sequence[bytes], *, seed: int, number: int) -> Recipe:
    """Return what to measure next. Its random numbers are its own: measuring does not change the inputs."""
    random = Random(f"{target.name} {seed} {number}")
    return target.amplify(random, random.choice(inputs))


def make_smaller(run: Run, finding: FuzzFinding, limits: Limits) -> FuzzFinding:
    """Return the finding with the smallest input that shows it."""
    if finding.data and judge(run, finding.data, limits).flaw != finding.flaw:
        return finding  # what ran before has a part in it
    small = minimise(finding.data, lambda data: judge(run, data, limits).flaw == finding.flaw)
    return FuzzFinding(finding.flaw, small, judge(run, small, limits).detail or finding.detail)


def examine(run: Run, recipe: Recipe, target: FuzzTarget) -> Iterator[FuzzFinding]:
    """Yield what is wrong with a recipe: with its largest input as such, else with the growth up to it."""
    data = recipe.make(target.limits.largest)
    verdict = judge(run, data, target.limits)
    if flaw := verdict.flaw or find_growth(run, recipe, target.limits):
        yield FuzzFinding(flaw, data[: target.limits.input_size], verdict.detail, recipe)
