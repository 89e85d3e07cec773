"""The pytest plugin of this repository: default signals, a deadline for each test, and a record of the run.

Set-up, call and tear-down of a test have its deadline each, and the import of a test module that of its directory.
"""

import faulthandler
import os
import tempfile
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any, Final, TypeVar

import pytest

from klet.aio.clock import SystemClock
from klet.errors import KletError
from klet.host.errors import FileError
from klet.host.files import remove_tree
from klet.testing.control_plane.programs import RELEASE_VARIABLE, VERSION, is_release
from klet.testing.runs.records import (
    Begun,
    Collected,
    EndedTest,
    Event,
    Finished,
    RecordReader,
    RunOutcome,
    Started,
    encode,
)
from klet.testing.runs.signals import restore_signals
from klet.testing.runs.watchdog import RunWatchdog, Watch

T = TypeVar("T")

NAME: Final = __name__
_GRACE: Final = "10"
_LONGEST_REASON: Final = 300
DEFAULT_LIMIT: Final = 300.0


class LimitError(KletError):
    """A limit that cannot be read."""


def parse_limits(lines: Iterable[str]) -> dict[PurePath, float]:
    """Read lines such as `tests/unit: 60`."""
    limits = {}
    for line in lines:
        directory, colon, seconds = line.partition(":")
        if not colon:
            raise LimitError(f"deadlines: {line!r} is not of the form <directory>: <seconds>")
        limits[PurePath(directory.strip())] = parse_seconds(seconds)
    return limits


def parse_seconds(text: object) -> float:
    try:
        seconds = float(str(text))
    except ValueError as error:
        raise LimitError(f"a deadline is a number of seconds, not {text!r}") from error
    if not 0 <= seconds < float("inf"):
        raise LimitError(f"a deadline is 0, for none, or more seconds, not {text!r}")
    return seconds


def choose_limit(path: PurePath, limits: Mapping[PurePath, float]) -> float:
    """Return the limit of the nearest directory that has one; the path is relative to where the limits are written."""
    for directory in (path, *path.parents):
        if directory in limits:
            return limits[directory]
    return DEFAULT_LIMIT


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("klet")
    group.addoption("--deadline", metavar="SECONDS", help="one deadline for every test, in place of its own; 0: none")
    group.addoption("--record", metavar="FILE", help="write each result to FILE, and leave out what it has already")
    group.addoption(
        "--kubernetes-version", metavar="RELEASE", help="run the tests of clusters with this release of the API server"
    )
    parser.addini("deadlines", "deadlines in seconds, as <directory>: <seconds>", type="linelist", default=[])
    parser.addini("deadline_grace", "seconds for a test to end after its deadline", default=_GRACE)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests() -> Generator[None, T, T]:
    """Let the stacks of a process that hangs in a conftest be seen: faulthandler would write where pytest captures."""
    was_enabled = faulthandler.is_enabled()
    descriptor = os.dup(2)
    faulthandler.enable(file=descriptor)
    try:
        return (yield)
    finally:
        if was_enabled:
            faulthandler.enable(file=2)
        else:
            faulthandler.disable()
        os.close(descriptor)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "deadline(seconds): for each of set-up, call and tear-down of this test; 0: none"
    )
    restore_signals()
    if config.option.kubernetes_version:
        if not is_release(config.option.kubernetes_version):
            raise pytest.UsageError(f"--kubernetes-version takes a release such as {VERSION}")
        # By the environment, because workers of xdist and children of tests look for the programs too.
        os.environ[RELEASE_VARIABLE] = config.option.kubernetes_version
    try:
        limits = parse_limits(config.getini("deadlines"))
        grace = parse_seconds(config.getini("deadline_grace"))
        only = None if config.option.deadline is None else parse_seconds(config.option.deadline)
    except LimitError as error:
        raise pytest.UsageError(str(error)) from error
    config.pluginmanager.register(Deadlines(root=config.rootpath, limits=limits, only=only, grace=grace), "deadlines")
    # Workers of xdist have a directory inside that of the process that started them; they report to it, and it writes.
    if hasattr(config, "workerinput"):
        return
    if config.option.basetemp is None:
        # Not pytest's numbered directories: it also removes those of earlier runs, and fails where a tree is too deep
        # for it or has a mount.
        directory = tempfile.mkdtemp(prefix="klet-tests-")
        config.option.basetemp = f"{directory}/files"
        config.add_cleanup(lambda: remove_files(Path(directory)))
    if config.option.record is not None:
        config.pluginmanager.register(Recorder(path=Path(config.option.record)), "recorder")


def remove_files(directory: Path) -> None:
    """Remove the files of a run, however deep; what lies beneath a mount that a test left is named and stays."""
    try:
        remove_tree(directory)
    except FileError as error:
        os.write(2, f"\nfiles of this run are left: {error}\n".encode(errors="replace"))


class Deadlines:
    """Ends each test that takes too long."""

    def __init__(self, *, root: Path, limits: dict[PurePath, float], only: float | None, grace: float) -> None:
        self._root = root
        self._limits = limits
        self._only = only
        self._by_path: dict[Path, float] = {}
        # At this moment nothing is captured yet.
        self._descriptor = os.dup(2)
        self._watchdog = RunWatchdog(write=self._write, descriptor=self._descriptor, grace=grace, clock=SystemClock())

    def limit_of(self, node: pytest.Item | pytest.Collector) -> float:
        """Return the seconds for each phase; raises UsageError."""
        if self._only is not None:
            return self._only
        mark = node.get_closest_marker("deadline")
        if mark is not None:
            try:
                return parse_seconds(mark.args[0] if mark.args else "")
            except LimitError as error:
                raise pytest.UsageError(f"{node.nodeid}: {error}") from error
        if (known := self._by_path.get(node.path)) is None:
            path = node.path.relative_to(self._root) if node.path.is_relative_to(self._root) else node.path
            known = self._by_path[node.path] = choose_limit(path, self._limits)
        return known

    def pytest_sessionstart(self) -> None:
        self._watchdog.open()

    def pytest_unconfigure(self) -> None:
        self._watchdog.close()
        os.close(self._descriptor)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        watch = self._begin(collector, "the collection")
        try:
            report = yield
        finally:
            self._watchdog.end()
        if watch.strikes:
            report.outcome, report.longrepr = "failed", watch.message
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, T, T]:
        return (yield from self._watched(item, "the set-up"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, T, T]:
        return (yield from self._watched(item, "the call"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, T, T]:
        return (yield from self._watched(item, "the tear-down"))

    def pytest_enter_pdb(self) -> None:
        """Lift the deadline for the rest of this phase: a debugger is attached."""
        self._watchdog.end()

    def _begin(self, node: pytest.Item | pytest.Collector, phase: str) -> Watch:
        return self._watchdog.begin(f"{phase} of {node.nodeid or 'everything'}", self.limit_of(node))

    def _watched(self, item: pytest.Item, phase: str) -> Generator[None, T, T]:
        watch = self._begin(item, phase)
        try:
            result = yield
        except (KeyboardInterrupt, pytest.exit.Exception):
            raise
        except BaseException:
            if not watch.strikes:
                raise
            # What came of the strike says less than the stacks.
            raise pytest.fail.Exception(watch.message, pytrace=False) from None
        finally:
            self._watchdog.end()
        if watch.strikes:
            pytest.fail(watch.message, pytrace=False)
        return result

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        while data:
            data = data[os.write(self._descriptor, data) :]


class Recorder:
    """Writes what happens, so that the test command knows it however the process ends."""

    def __init__(self, *, path: Path) -> None:
        self._begun = {event.test for event in RecordReader(path).read() if isinstance(event, Begun)}
        self._file = path.open("ab", buffering=0)

    def pytest_sessionstart(self) -> None:
        self._put(Started())

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what began in a process that did not live to its end."""
        done = [item for item in items if item.nodeid in self._begun]
        if done:
            items[:] = [item for item in items if item.nodeid not in self._begun]
            config.hook.pytest_deselected(items=done)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        deadlines: Any = session.config.pluginmanager.get_plugin("deadlines")
        assert isinstance(deadlines, Deadlines)
        limits = [deadlines.limit_of(item) for item in session.items]
        self._put(Collected(len(limits), 0 if 0 in limits else max(limits, default=0)))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self._put(EndedTest(report.nodeid, RunOutcome(report.outcome), _skip_reason(report)))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._put(Begun(nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if (outcome := classify(report)) is not None:
            self._put(EndedTest(report.nodeid, outcome, _skip_reason(report)))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._put(Finished(int(exitstatus)))

    def pytest_unconfigure(self) -> None:
        self._file.close()

    def _put(self, event: Event) -> None:
        self._file.write(encode(event))


def classify(report: pytest.TestReport) -> RunOutcome | None:
    """Say what a phase counts as: failures always, successes of the call alone."""
    is_expected = hasattr(report, "wasxfail")
    if report.skipped:
        return RunOutcome.XFAILED if is_expected else RunOutcome.SKIPPED
    if report.failed:
        return RunOutcome.FAILED
    if report.when != "call":
        return None
    return RunOutcome.XPASSED if is_expected else RunOutcome.PASSED


def _skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if not report.skipped or not isinstance(report.longrepr, tuple):
        return ""
    reason = report.longrepr[2].removeprefix("Skipped: ").removeprefix("skipped: ")
    return " ".join(reason.split())[:_LONGEST_REASON]
