"""Runs all parts of the tests, and says at the end what came of them."""

import asyncio
import signal
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from klet.aio.clock import Clock
from klet.testing.runs.console import Console
from klet.testing.runs.part import PartRun, Patience
from klet.testing.runs.plan import PytestProcess, RunStage
from klet.testing.runs.records import RunOutcome
from klet.testing.runs.tally import describe_counts, describe_skips, describe_time, sum_counts, sum_skips

_INTERRUPTED: Final = 130


class SuiteRun:
    """All parts of one run."""

    def __init__(
        self, *, stages: Sequence[RunStage], directory: Path, console: Console, patience: Patience, clock: Clock
    ) -> None:
        self._stages = stages
        self._directory = directory
        self._console = console
        self._patience = patience
        self._clock = clock
        self._started = clock.monotonic()
        self._runs: list[PartRun] = []

    async def run(self) -> None:
        for stage in self._stages:
            async with asyncio.TaskGroup() as group:
                for part in stage.parts:
                    group.create_task(self._run_part(part), name=part.name)

    def kill(self) -> None:
        """End whatever still runs, at once."""
        for run in self._runs:
            run.kill()

    def finish(self, *, is_interrupted: bool) -> int:
        """Say what came of it, the numbers last, and return the exit code."""
        tallies = [run.tally for run in self._runs]
        counts = sum_counts(tallies)
        for line in describe_skips(sum_skips(tallies)):
            self._console.write(f"{line}\n")
        for tally in tallies:
            for name in tally.failed:
                self._console.write(f"FAILED {name}\n")
        if is_interrupted:
            self._console.write("interrupted\n")
        took = timedelta(seconds=self._clock.monotonic() - self._started)
        self._console.write(f"{describe_counts(counts)} in {describe_time(took)}\n")
        if is_interrupted:
            return _INTERRUPTED
        return 1 if counts[RunOutcome.FAILED] else max((run.code for run in self._runs), default=0)

    async def _run_part(self, part: PytestProcess) -> None:
        self._console.say(f"{part.name}: pytest {' '.join(part.arguments)}")
        run = PartRun(
            part=part, directory=self._directory, console=self._console, patience=self._patience, clock=self._clock
        )
        self._runs.append(run)
        try:
            await run.run()
        finally:
            if run.tally.failed and not part.is_attended:
                output = run.output.read_text(errors="replace")
                self._console.write(f"===== output of {part.name}\n{output}===== end of {part.name}\n")


async def run_until_interrupted(run: SuiteRun) -> int:
    """Run everything; the first SIGINT or SIGTERM ends it in order, a second one at once."""
    task = asyncio.current_task()
    assert task is not None
    has_come = asyncio.Event()

    def interrupt() -> None:
        if has_come.is_set():
            run.kill()
        has_come.set()
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupt)
    try:
        await run.run()
    except asyncio.CancelledError:
        if not has_come.is_set():
            raise
    return run.finish(is_interrupted=has_come.is_set())
