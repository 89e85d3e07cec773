"""One call of scripts/conformance: the stage, the runs on it, what they say together, and the files that stay."""

import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from klet.aio.clock import Clock
from klet.errors import KletError
from klet.testing.conformance.document import write_document
from klet.testing.conformance.report import Report, SpecOutcome
from klet.testing.conformance.results import (
    Difference,
    Result,
    diff_results,
    is_success,
    join_records,
    last_failures,
    merge_reports,
    read_result,
    render_result,
    write_result,
)
from klet.testing.conformance.runner import Suite, run_suite
from klet.testing.conformance.spec_sets import RECORDED, Selection, exactly
from klet.testing.conformance.stage import UPSTREAM, ConformanceCluster, Supplies, set_stage
from klet.testing.control_plane.programs import VERSION

LAST: Final = "result.json"
FAILURES: Final = "failures.txt"
RUN: Final = "run-"
_SHOWN: Final = 3
LINES: Final = 40
SLACK: Final = timedelta(seconds=1)
_HEAD: Final = re.compile(r"^[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6}) ")


class NothingToRun(KletError):
    """No spec was chosen, or the suite could not start."""


class CampaignRequest(Struct, frozen=True, kw_only=True):
    """What the user asked for."""

    kubelet: str
    spec_set: str
    selection: Selection
    only_failed: bool
    procs: int
    repeat: int
    keep: bool
    """Whether the result becomes the record."""
    as_json: bool
    results: Path
    """Where the files of the last run stay."""
    records: Path
    """Where the repository keeps runs of both agents: a directory for each set."""

    def record(self, kubelet: str, spec_set: str | None = None) -> Path:
        """Return where the repository keeps a run."""
        return self.records / (spec_set or self.spec_set) / f"{kubelet}.json"

    @property
    def working(self) -> Path:
        """Where the files of a run are until it has ended, so that one which is interrupted replaces nothing."""
        return self.results.with_name(f"{self.results.name}.unfinished")


class Campaign:
    """Runs the specs as often as it was asked to."""

    def __init__(
        self, *, request: CampaignRequest, supplies: Supplies, say: Callable[[str], None], clock: Clock
    ) -> None:
        self._request = request
        self._supplies = supplies
        self._say = say
        self._clock = clock
        self.is_success = False

    async def run(self) -> str:
        """Run everything; what to print."""
        request = self._request
        selection = choose_selection(request)
        read_yardstick(request)  # an unreadable one is better known before than after
        directories = make_directories(request.working, request.repeat)
        began = self._clock.monotonic()
        async with set_stage(request.kubelet, self._supplies, say=self._say, clock=self._clock) as stage:
            started = self._clock.monotonic()
            self._say(f"the node is ready after {started - began:.0f} s")
            reports = await self._run_all(stage, selection, directories)
            seconds = round(self._clock.monotonic() - started)
        result = merge_reports(
            reports,
            release=VERSION,
            kubelet=request.kubelet,
            date=f"{self._clock.now():%Y-%m-%d}",
            seconds=seconds,
            focus=selection.focus,
            skip=selection.skip,
        )
        return self._finish(result, reports)

    async def _run_all(
        self, stage: ConformanceCluster, selection: Selection, directories: Sequence[Path]
    ) -> list[Report]:
        working = self._request.working
        reports: list[Report] = []
        notes: list[str] = []
        try:
            for number, directory in enumerate(directories, start=1):
                if len(directories) > 1:
                    self._say(f"run {number} of {len(directories)}")
                report = await self._run_once(stage, selection, directory)
                reports.append(report)
                notes += describe_failures(report, stage.agent.log)
        finally:
            (working / "agent.log").write_text(stage.agent.log)
            (working / FAILURES).write_text("\n".join(notes))
        return reports

    async def _run_once(self, stage: ConformanceCluster, selection: Selection, directory: Path) -> Report:
        suite = Suite(
            kubeconfig=stage.plane.admin,
            directory=directory,
            home=stage.containerd.directory,
            kubelet_root=stage.kubelet_root,
            procs=self._request.procs,
        )
        report = await run_suite(suite, selection, say=self._say, check=stage.agent.check, clock=self._clock)
        if report.unusable:
            raise NothingToRun(f"the suite could not run: {'; '.join(report.unusable)}")
        if not report.outcomes:
            raise NothingToRun(f"no spec ran: {describe_selection(selection)}")
        return report

    def _finish(self, result: Result, reports: Iterable[Report]) -> str:
        request = self._request
        upstream = choose_yardstick(request, result)
        difference = None if upstream is None else diff_results(result, upstream)
        failures = last_failures(reports)
        self.is_success = is_success(result, difference)
        write_result(request.working / LAST, result)
        shutil.rmtree(request.results, ignore_errors=True)
        request.working.rename(request.results)
        if request.keep:
            write_result(request.record(request.kubelet), result)
            self._say(f"wrote {write_document(Path(), request.records)}")
        if request.as_json:
            return render_json(result, difference, failures)
        where = [f"agent's log lines beside each failure: {request.results / FAILURES}"] if result.failed else []
        where.append(f"report and logs: {request.results}")
        return render_result(result, difference, failures) + "".join(f"{line}\n" for line in where)


def choose_yardstick(request: CampaignRequest, result: Result) -> Result | None:
    """Return the run of upstream's kubelet to compare a result with; what is being recorded replaces the last."""
    if request.keep and request.kubelet == UPSTREAM:
        return result
    return read_yardstick(request)


def read_yardstick(request: CampaignRequest) -> Result | None:
    """Return what is recorded of upstream's kubelet, first in the set of the request; raises RecordUnreadable."""
    others = (read_result(request.record(UPSTREAM, spec_set.name)) for spec_set in RECORDED)
    return join_records(read_result(request.record(UPSTREAM)), filter(None, others))


def make_directories(working: Path, runs: int) -> list[Path]:
    """Return a directory for each run, in place of what was there."""
    shutil.rmtree(working, ignore_errors=True)
    made = [working / f"{RUN}{number}" for number in range(1, runs + 1)]
    for directory in made:
        directory.mkdir(parents=True)
    return made


def describe_selection(selection: Selection) -> str:
    """Return the patterns, or how many there are if they are many."""
    focus = " | ".join(selection.focus) if len(selection.focus) <= _SHOWN else f"{len(selection.focus)} names"
    return f"focus {focus or 'everything'}, skip {' | '.join(selection.skip) or 'nothing'}"


def choose_selection(request: CampaignRequest) -> Selection:
    """Return the specs of the request, or those that failed last; raises NothingToRun."""
    if not request.only_failed:
        return request.selection
    last = read_result(request.results / LAST)
    if last is None:
        raise NothingToRun(f"no last run of {request.kubelet} to take failed specs from: {request.results / LAST}")
    if not last.failed:
        raise NothingToRun(f"nothing failed in the last run of {request.kubelet}")
    return exactly(last.failed)


def describe_failures(report: Report, log: str) -> list[str]:
    """Return each failed spec with its message and what the agent said in its time."""
    lines = log.splitlines()
    return [line for outcome in report.outcomes if not outcome.passed for line in describe_failure(outcome, lines)]


def describe_failure(outcome: SpecOutcome, log: Iterable[str]) -> list[str]:
    said = select_lines(log, started=outcome.started, ended=outcome.ended, namespace=outcome.namespace)
    return [
        f"== {outcome.name}",
        f"{outcome.started:%H:%M:%S} to {outcome.ended:%H:%M:%S}, namespace {outcome.namespace or 'unknown'}",
        *(f"  {line}" for line in (outcome.location, *outcome.message.splitlines())),
        "-- the agent:",
        *(f"  {line}" for line in said),
        "",
    ]


def render_json(result: Result, difference: Difference | None, failures: Mapping[str, SpecOutcome]) -> str:
    shown = {
        "result": result,
        "difference": difference,
        "failures": [
            {"name": name, "message": outcome.message, "location": outcome.location}
            for name, outcome in sorted(failures.items())
        ],
    }
    return msgspec.json.format(msgspec.json.encode(shown), indent=2).decode() + "\n"


def select_lines(
    log: Iterable[str], *, started: datetime, ended: datetime, namespace: str = "", limit: int = LINES
) -> Sequence[str]:
    """Return the last lines of a window; if any of them names the namespace of the spec, only those that do.

    Other specs run at the same time, so a window alone shows mostly others. Lines without a date belong to the one
    before.
    """
    window: list[str] = []
    is_inside = False
    for line in log:
        at = read_time(line, near=started)
        if at is not None:
            is_inside = started - SLACK <= at <= ended + SLACK
        if is_inside:
            window.append(line.rstrip("\n"))
    own = [line for line in window if namespace and namespace in line]
    return (own or window)[-limit:]


def read_time(line: str, *, near: datetime) -> datetime | None:
    """Return when a line was written; klog leaves the year out and uses the machine's time zone."""
    found = _HEAD.match(line)
    if found is None:
        return None
    month, day, hour, minute, second, microsecond = map(int, found.groups())
    try:
        local = datetime(near.year, month, day, hour, minute, second, microsecond)  # noqa: DTZ001  # local, as klog's
    except ValueError:
        return None
    return local.astimezone(UTC)
