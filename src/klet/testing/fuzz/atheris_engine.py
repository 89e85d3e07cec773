"""Fuzzes with atheris: libFuzzer changes inputs by the edges of klet's byte code that they reach, in a child process.

The child continues after an input that broke a rule, and is started again after a crash, a hang or too much memory. Its
findings are minimised here, in children of their own (`isolated.py`). The last part of the time is for the growth of
cost with size, which libFuzzer does not measure. One seed makes one sequence of inputs from the target's own ones.
"""

import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from klet.aio.clock import Clock
from klet.errors import KletError
from klet.testing.fuzz.corpus import FuzzFinding
from klet.testing.fuzz.engine import GROWTH_EVERY, MOST_FINDINGS, CorpusStore, FuzzProgress, choose_recipe
from klet.testing.fuzz.isolated import Guard, examine_isolated, judge_isolated, make_smaller_isolated
from klet.testing.fuzz.libfuzzer import (
    LibfuzzerPlan,
    LibfuzzerStatus,
    build_options,
    describe_artifact,
    find_artifact,
    read_status,
)
from klet.testing.fuzz.target import FuzzTarget

CHILD: Final = "klet.testing.fuzz.atheris_child"
TARGETS: Final = "klet.testing.fuzz.targets.all"
SHARE: Final = 0.75
"""Of the time, for inputs; the rest is for their cost."""
_MOST_DEATHS: Final = 5
_LOOK: Final = 500
"""Milliseconds between two looks at the child."""
_PIECE: Final = 1 << 16
_GRACE: Final = 10.0
_KEPT_OUTPUT: Final = 4000
_GUARD: Final = Guard()


class EngineError(KletError):
    """The fuzzer itself does not work here."""


class Budget(Struct, frozen=True, kw_only=True):
    """How long to fuzz one target: for a time, or for a number of inputs."""

    seconds: float = 0.0
    executions: int = 0


def is_there() -> bool:
    """Return whether atheris is installed: there is no wheel for every machine."""
    return find_spec("atheris") is not None


class AtherisFuzzer:
    """Fuzzes one target."""

    def __init__(
        self,
        *,
        target: FuzzTarget,
        seed: int,
        keeper: CorpusStore,
        budget: Budget,
        clock: Clock,
        module: str = TARGETS,
        guard: Guard = _GUARD,
    ) -> None:
        self._target = target
        self._seed = seed
        self._keeper = keeper
        self._budget = budget
        self._clock = clock
        self._module = module
        self._guard = guard
        self._findings: dict[str, FuzzFinding] = {}
        self._status = LibfuzzerStatus()
        self._ran_before = 0
        """Executions of children that have ended."""
        self._measured = 0

    @property
    def progress(self) -> FuzzProgress:
        return FuzzProgress(
            executions=self._ran_before + self._status.executions,
            measured=self._measured,
            corpus=self._status.corpus,
            edges=self._status.edges,
            findings=tuple(self._findings.values()),
        )

    def run(self, *, is_over: Callable[[FuzzProgress], bool]) -> FuzzProgress:
        """Run inputs, then measure what they cost, until it is over or so much was found that more says nothing."""
        with tempfile.TemporaryDirectory(prefix="klet-fuzz-") as directory:
            files = _Files(Path(directory))
            files.prepare([*self._target.seeds(), *self._keeper.load()])
            self._fuzz(files, is_over)
            self._measure(files.all_inputs(), is_over)
        return self.progress

    def _fuzz(self, files: "_Files", is_over: Callable[[FuzzProgress], bool]) -> None:
        started = self._clock.monotonic()
        for deaths in range(_MOST_DEATHS):
            plan = LibfuzzerPlan(
                seed=self._seed + deaths,
                executions=max(0, self._budget.executions - self._ran_before),
                seconds=self._budget.seconds and self._budget.seconds * SHARE - (self._clock.monotonic() - started),
            )
            is_enough = plan.seconds <= 0 if self._budget.seconds else plan.executions == 0
            if is_enough or len(self._findings) >= MOST_FINDINGS:
                return
            if not self._run_child(files, plan, is_over):
                return

    def _run_child(self, files: "_Files", plan: LibfuzzerPlan, is_over: Callable[[FuzzProgress], bool]) -> bool:
        """Run one child to its end; returns whether an input has ended it."""
        self._status = LibfuzzerStatus()
        output = _Output(self._start(files, plan))
        deadline = self._clock.monotonic() + plan.seconds if plan.seconds else None
        try:
            while output.read():
                for line in output.lines():
                    self._status = read_status(line, self._status)
                self._collect(files)
                is_late = deadline is not None and self._clock.monotonic() > deadline
                if is_over(self.progress) or is_late or len(self._findings) >= MOST_FINDINGS:
                    return False
        finally:
            output.end()
            self._collect(files)
            self._ran_before += self._status.executions
            self._status = LibfuzzerStatus(0, self._status.edges, self._status.corpus)
        return self._take_artifact(files, output)

    def _start(self, files: "_Files", plan: LibfuzzerPlan) -> "subprocess.Popen[bytes]":
        options = build_options(plan, self._target.limits, self._guard, files.artifacts)
        command = [sys.executable, "-P", "-m", CHILD, self._module, self._target.name, str(files.findings)]
        return subprocess.Popen(
            [*command, *options, str(files.made), str(files.given)],
            # What the target makes there goes with our own directory, however the child ends.
            env={"PYTHONHASHSEED": "0", "GRPC_VERBOSITY": "NONE", **os.environ, "TMPDIR": str(files.scratch)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _collect(self, files: "_Files") -> None:
        for data in files.new_inputs():
            self._keeper.keep(data)
        for finding in files.new_findings():
            if finding.flaw not in self._findings:
                self._found(make_smaller_isolated(self._target, finding, self._guard))

    def _take_artifact(self, files: "_Files", output: "_Output") -> bool:
        name = files.take_artifact()
        if name is None:
            if output.code != 0:
                raise EngineError(f"atheris ended with code {output.code}: {output.tail}")
            return False
        data = (files.artifacts / name).read_bytes()
        shown = judge_isolated(self._target, data, self._guard)
        flaw, detail = shown.flaw or describe_artifact(name, self._guard), shown.detail or output.tail
        if flaw not in self._findings:
            self._found(make_smaller_isolated(self._target, FuzzFinding(flaw, data, detail), self._guard))
        return True

    def _measure(self, inputs: list[bytes], is_over: Callable[[FuzzProgress], bool]) -> None:
        planned = max(1, self._budget.executions // GROWTH_EVERY)
        while len(self._findings) < MOST_FINDINGS:
            is_enough = self._measured >= planned if self._budget.executions else is_over(self.progress)
            if self._measured and is_enough:
                return
            self._measured += 1
            recipe = choose_recipe(self._target, inputs, seed=self._seed, number=self._measured)
            for finding in examine_isolated(self._target, recipe, self._guard):
                if finding.flaw not in self._findings:
                    self._found(finding)

    def _found(self, finding: FuzzFinding) -> None:
        self._findings[finding.flaw] = finding
        self._keeper.save(finding)


class _Files:
    """The directories of one run."""

    def __init__(self, directory: Path) -> None:
        self.given = directory / "given"
        self.made = directory / "made"
        """What libFuzzer keeps, under names of its own."""
        self.artifacts = directory / "artifacts"
        self.scratch = directory / "tmp"
        self.findings = directory / "findings"
        self._seen: set[str] = set()
        self._read = 0
        self._taken: set[str] = set()

    def prepare(self, inputs: list[bytes]) -> None:
        for made in (self.given, self.made, self.artifacts, self.scratch):
            made.mkdir()
        self.findings.touch()
        for number, data in enumerate(inputs):
            (self.given / f"{number:06}").write_bytes(data)

    def new_inputs(self) -> list[bytes]:
        names = sorted({file.name for file in self.made.iterdir()} - self._seen)
        self._seen.update(names)
        return [data for name in names if (data := _read(self.made / name)) is not None]

    def new_findings(self) -> list[FuzzFinding]:
        """Return what the child has written down since; the last line may not be complete yet."""
        data = self.findings.read_bytes()[self._read :]
        complete = data[: data.rfind(b"\n") + 1]
        self._read += len(complete)
        return [msgspec.json.decode(line, type=FuzzFinding) for line in complete.splitlines()]

    def take_artifact(self) -> str | None:
        """Return the name of a file that has come since the last one."""
        name = find_artifact([file.name for file in self.artifacts.iterdir() if file.name not in self._taken])
        if name is not None:
            self._taken.add(name)
        return name

    def all_inputs(self) -> list[bytes]:
        return [file.read_bytes() for directory in (self.given, self.made) for file in sorted(directory.iterdir())]


def _read(file: Path) -> bytes | None:
    """Return the input in a file; None if a smaller one has replaced it meanwhile."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


class _Output:
    """What a child says."""

    def __init__(self, child: "subprocess.Popen[bytes]") -> None:
        assert child.stdout is not None  # it was asked for
        self._child = child
        self._stream = child.stdout
        self._poll = select.poll()
        self._poll.register(self._stream, select.POLLIN)
        self._rest = b""
        self._new: list[str] = []
        self._is_over = False
        self.tail = ""
        """The end of all that was said."""

    @property
    def code(self) -> int | None:
        return self._child.returncode

    def read(self) -> bool:
        """Wait for more, at most for a moment; returns whether there may be more."""
        if not self._poll.poll(_LOOK):
            return True
        piece = os.read(self._stream.fileno(), _PIECE)
        *lines, self._rest = (self._rest + piece).split(b"\n")
        self._rest = self._rest[-_KEPT_OUTPUT:]
        self._new = [line.decode(errors="replace") for line in lines]
        self.tail = (self.tail + piece.decode(errors="replace"))[-_KEPT_OUTPUT:]
        self._is_over = not piece
        return not self._is_over

    def lines(self) -> list[str]:
        lines, self._new = self._new, []
        return lines

    def end(self) -> None:
        """Wait for the end of the child; one that still speaks is ended."""
        if not self._is_over:
            self._child.terminate()
        try:
            self._child.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._stream.close()
