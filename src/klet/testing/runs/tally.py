"""Counts what a run has brought, and says it in words."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta

from klet.testing.runs.records import Begun, Collected, EndedTest, Event, Finished, RunOutcome, Started


class Tally:
    """What one part has done so far; it may have taken more than one process."""

    def __init__(self) -> None:
        self.counts: Counter[RunOutcome] = Counter()
        self.failed: list[str] = []
        self.skipped: Counter[str] = Counter()
        self.expected = 0
        self.running = ""
        """The test that began last, if it may still run."""
        self.limit = 0.0
        """The longest deadline of a test here, 0 if one has none."""
        self.is_started = False
        self.is_collected = False
        self.is_finished = False
        self._begun = 0

    def read(self, event: Event) -> None:
        match event:
            case Started():
                self.is_started, self.is_collected, self.is_finished, self.running = True, False, False, ""
            case Collected():
                self.is_collected, self.expected, self.limit = True, self._begun + event.count, event.limit
            case Begun():
                self.running = event.test
                self._begun += 1
            case EndedTest():
                self._count(event)
            case Finished():
                self.is_finished, self.running = True, ""

    def fail(self, name: str) -> None:
        """Count what pytest itself could not report."""
        self.counts[RunOutcome.FAILED] += 1
        self.failed.append(name)

    @property
    def done(self) -> int:
        return self._begun - bool(self.running)

    def _count(self, event: EndedTest) -> None:
        if event.outcome is RunOutcome.FAILED:
            self.fail(event.test)
            return
        self.counts[event.outcome] += 1
        if event.outcome is RunOutcome.SKIPPED:
            self.skipped[event.reason] += 1


def describe_progress(tally: Tally, *, running_for: timedelta) -> str:
    """Say how far a part is: `312 of 700 done, 1 failed; tests/x.py::test_y for 0:45`."""
    if not tally.is_started:
        return "starting"
    if not tally.is_collected and not tally.running:
        return "collecting tests"
    failed = f", {tally.counts[RunOutcome.FAILED]} failed" if tally.counts[RunOutcome.FAILED] else ""
    doing = f"; {tally.running} for {describe_time(running_for)}" if tally.running else ""
    return f"{tally.done} of {tally.expected or '?'} done{failed}{doing}"


def describe_skips(skipped: Mapping[str, int]) -> list[str]:
    """Return one line for each reason, the most frequent first."""
    return [
        f"skipped {count}: {reason}" for reason, count in sorted(skipped.items(), key=lambda item: (-item[1], item))
    ]


def describe_counts(counts: Mapping[RunOutcome, int]) -> str:
    """Return `passed 3, failed 1, skipped 0`, and what else there is."""
    always = (RunOutcome.PASSED, RunOutcome.FAILED, RunOutcome.SKIPPED)
    shown = [outcome for outcome in RunOutcome if outcome in always or counts.get(outcome)]
    return ", ".join(f"{outcome.value} {counts.get(outcome, 0)}" for outcome in shown)


def describe_time(duration: timedelta) -> str:
    minutes, seconds = divmod(int(duration.total_seconds()), 60)
    return f"{minutes}:{seconds:02}"


def sum_counts(tallies: Iterable[Tally]) -> Counter[RunOutcome]:
    return sum((tally.counts for tally in tallies), Counter[RunOutcome]())


def sum_skips(tallies: Iterable[Tally]) -> Counter[str]:
    return sum((tally.skipped for tally in tallies), Counter[str]())
