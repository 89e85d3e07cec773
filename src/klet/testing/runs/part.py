"""Runs one part of the tests: follows its record, ends it if it hangs, and goes on after a test that broke it."""

import asyncio
import os
import shutil
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec

from klet.aio.clock import Clock
from klet.testing.runs.console import PROGRESS_EVERY, Console
from klet.testing.runs.plan import PytestProcess
from klet.testing.runs.plugin import NAME as PLUGIN
from klet.testing.runs.records import EndedTest, RecordReader, RunOutcome
from klet.testing.runs.tally import Tally, describe_counts, describe_progress, describe_time

_LOOK_EVERY: Final = timedelta(seconds=0.25)
_MOST_PROCESSES: Final = 5
_UNKNOWN_LIMIT: Final = 900.0
# All passed; some failed; nothing was collected, which is an answer to arguments. 2 is a Ctrl-C or a failed collection.
_CODES_WITH_RESULTS: Final = frozenset({0, 1, 5})


class Patience(msgspec.Struct, frozen=True):
    """How long a process may show no sign of life, beyond the deadlines that it keeps itself."""

    outside: timedelta = timedelta(minutes=5)
    """Without a test that runs: at the start, in the collection."""
    exit: timedelta = timedelta(minutes=2)
    """After its last test."""
    grace: timedelta = timedelta(minutes=2)
    """After the deadlines of a test's three phases."""
    stacks: timedelta = timedelta(seconds=5)
    """To print its stacks."""
    interrupt: timedelta = timedelta(seconds=30)
    """To put things in order after Ctrl-C."""


def decide_patience(tally: Tally, patience: Patience) -> timedelta | None:
    """Say how long the silence of a process may last; None if a test has no deadline."""
    if tally.is_finished:
        return patience.exit
    if not tally.running:
        return patience.outside
    if tally.is_collected and not tally.limit:
        return None
    return 3 * timedelta(seconds=tally.limit or _UNKNOWN_LIMIT) + patience.grace


class PartRun:
    """One part, from the start of its process to the last result."""

    def __init__(
        self, *, part: PytestProcess, directory: Path, console: Console, patience: Patience, clock: Clock
    ) -> None:
        self.part = part
        self.tally = Tally()
        self.code = 0
        self.output = directory / f"{part.name}.out"
        self._record = directory / f"{part.name}.jsonl"
        self._reader = RecordReader(self._record)
        self._console = console
        self._patience = patience
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None
        self._started = self._last_event = self._test_began = clock.monotonic()

    async def run(self) -> None:
        self._console.begin(self.part.name)
        try:
            for _ in range(_MOST_PROCESSES):
                broken = await self._run_process()
                # A new process goes on with the tests that have not begun yet.
                if not broken or self.part.is_attended:
                    break
                self._console.say(f"{self.part.name}: goes on after {broken}")
        finally:
            self._console.end(self.part.name)
        if self.part.is_attended:
            return
        if (missing := self.tally.expected - self.tally.done) > 0:
            self.tally.fail(f"{self.part.name} ({missing} tests did not run)")
        took = describe_time(timedelta(seconds=self._clock.monotonic() - self._started))
        self._console.say(f"{self.part.name}: {describe_counts(self.tally.counts)} in {took}")

    def kill(self) -> None:
        """End it at once, and whatever child stayed in its process group."""
        if self._process is None:
            return
        if not self._shares_terminal:
            with suppress(ProcessLookupError):  # the group is empty
                os.killpg(self._process.pid, signal.SIGKILL)
        elif self._process.returncode is None:
            self._process.kill()

    async def _run_process(self) -> str:
        """Run pytest to its end; return the test that broke it, if one did."""
        with self.output.open("ab") as output:
            process = await self._start(None if self.part.is_attended else output.fileno())
        self._process = process
        try:
            await self._follow(process)
        except asyncio.CancelledError:
            await self._interrupt(process)
            raise
        finally:
            self._look()
            if process.returncode is None or not self.tally.is_finished:
                self.kill()
            await process.wait()
            self._process = None
        assert process.returncode is not None
        self.code = process.returncode
        return self._judge(process.returncode)

    async def _start(self, output: int | None) -> asyncio.subprocess.Process:
        command = [sys.executable, "-P", "-X", "faulthandler", "-m", "pytest", "-q", "-p", PLUGIN]
        command += [f"--record={self._record}", *self.part.arguments]
        # The kernel interrupts the tests should we be killed.
        if (setpriv := shutil.which("setpriv")) is not None:
            command = [setpriv, "--pdeathsig", "INT", *command]
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=None if self.part.is_attended else asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # On a terminal only the process group in the foreground can be talked to, by a debugger for example.
            process_group=None if self._shares_terminal else 0,
        )

    @property
    def _shares_terminal(self) -> bool:
        return self.part.is_attended and os.isatty(0)

    async def _follow(self, process: asyncio.subprocess.Process) -> None:
        self._last_event = self._clock.monotonic()
        while process.returncode is None:
            await self._clock.wait(process.wait(), at_most=_LOOK_EVERY)
            self._look()
            self._show_progress()
            allowed, silence = decide_patience(self.tally, self._patience), self._silence()
            if allowed is not None and silence > allowed and process.returncode is None:
                await self._abort(process, silence)

    def _look(self) -> None:
        """Read what is new in the record."""
        for event in self._reader.read():
            before = self.tally.running
            self.tally.read(event)
            self._last_event = self._clock.monotonic()
            if self.tally.running != before:
                self._test_began = self._last_event
            if isinstance(event, EndedTest) and event.outcome is RunOutcome.FAILED and not self.part.is_attended:
                self._console.say(f"{self.part.name}: FAILED {event.test}")

    def _silence(self) -> timedelta:
        return timedelta(seconds=self._clock.monotonic() - self._last_event)

    def _show_progress(self) -> None:
        running_for = timedelta(seconds=self._clock.monotonic() - self._test_began)
        text = describe_progress(self.tally, running_for=running_for)
        # Of a part whose output is to be seen, pytest shows the progress, but not that one test takes long.
        is_slow = bool(self.tally.running) and running_for >= PROGRESS_EVERY
        if not self.part.is_attended or (is_slow and not os.isatty(1)):
            self._console.progress(self.part.name, text)

    async def _abort(self, process: asyncio.subprocess.Process, silence: timedelta) -> None:
        """End a process that hangs, after it has printed its stacks; faulthandler does that at SIGABRT."""
        where = self.tally.running or ("its exit" if self.tally.is_finished else "its collection or start")
        self._console.say(f"{self.part.name}: no sign of life for {describe_time(silence)} in {where}: it is ended")
        if self.tally.is_started and not self.tally.is_finished:
            # The plugin prints those of the tasks too.
            await self._signal(process, signal.SIGALRM, self._patience.stacks)
        await self._signal(process, signal.SIGABRT, self._patience.stacks)
        self.kill()

    async def _interrupt(self, process: asyncio.subprocess.Process) -> None:
        """Let the tests put things in order; on a terminal, Ctrl-C has reached them already."""
        if self._shares_terminal:
            await self._clock.wait(process.wait(), at_most=self._patience.stacks)
        await self._signal(process, signal.SIGINT, self._patience.interrupt)

    async def _signal(self, process: asyncio.subprocess.Process, number: signal.Signals, at_most: timedelta) -> None:
        if process.returncode is None:
            process.send_signal(number)
            await self._clock.wait(process.wait(), at_most=at_most)

    def _judge(self, code: int) -> str:
        """Count an end that pytest did not report; return the test that caused it."""
        tally = self.tally
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        if tally.is_started and not tally.is_finished:
            broken = tally.running
            tally.fail(f"{broken or self.part.name} (the process of pytest ended: {how})")
            return broken
        if code < 0 or (code not in _CODES_WITH_RESULTS and not tally.failed):
            tally.fail(f"{self.part.name} (the process of pytest ended: {how})")
        return ""
