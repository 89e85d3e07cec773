"""Runs the suite with ginkgo, and follows it line by line."""

import asyncio
import os
import re
import shutil
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.aio.clock import Clock
from klet.testing.conformance.report import Report, ReportUnreadable, parse_report
from klet.testing.conformance.spec_sets import Selection
from klet.testing.control_plane.programs import E2E_TEST, GINKGO, KUBECTL, find_program

REPORT: Final = "report.json"
LIMIT: Final = timedelta(hours=3)
_LONGEST_LINE: Final = 1 << 20
_TAIL: Final = 2000
_TOTAL: Final = re.compile(r"^Will run (\d+) of \d+ specs$")
_PASSED: Final = re.compile(r"^•(?: \[[\d.]+ seconds\])?$")
_FAILED: Final = re.compile(r"^• \[[A-Z!]+\] \[[\d.]+ seconds\]$")
_MARK: Final = re.compile(r"\s*\[(?:It|BeforeEach|AfterEach|DeferCleanup \([^)]*\))\](?= |$)")
_LABELS: Final = re.compile(r" \[[^\[\]]*, [^\[\]]*\]$")
"""What ginkgo adds to the name of a spec that has failed."""


class SpecProgress:
    """Counts specs as they end."""

    def __init__(self) -> None:
        self.total = 0
        self.passed = 0
        self.failed: list[str] = []
        self._expects_name = False

    def read(self, line: str) -> str:
        """Take one line of ginkgo's output; return the name of the spec that it says has failed, or nothing."""
        text = line.rstrip()
        if self._expects_name and text:
            self._expects_name = False
            self.failed.append(_MARK.sub("", _LABELS.sub("", text)).strip())
            return self.failed[-1]
        if found := _TOTAL.match(text):
            self.total = int(found[1])
        elif _FAILED.match(text):
            self._expects_name = True
        elif _PASSED.match(text):
            self.passed += 1
        return ""

    @property
    def done(self) -> int:
        return self.passed + len(self.failed)

    def describe(self, elapsed: timedelta) -> str:
        minutes, seconds = divmod(int(elapsed.total_seconds()), 60)
        return f"{self.done} of {self.total or '?'} done, {len(self.failed)} failed, {minutes}:{seconds:02} min"


class Suite(Struct, frozen=True):
    """How the suite is run."""

    kubeconfig: Path
    directory: Path
    """Where the report and the output go; it exists."""
    home: Path
    """The home directory of the suite, for what kubectl keeps."""
    kubelet_root: Path
    """The agent's root directory, which drivers of the suite mount."""
    procs: int
    progress_every: timedelta = timedelta(seconds=15)


def build_command(suite: Suite, selection: Selection) -> tuple[str, ...]:
    """Return the command line of ginkgo."""
    return (
        str(find_program(GINKGO)),
        f"--procs={suite.procs}",
        *(f"--focus={pattern}" for pattern in selection.focus),
        *(f"--skip={pattern}" for pattern in selection.skip),
        "--no-color",
        "--force-newlines",
        "--silence-skips",
        "--keep-going",
        f"--timeout={int(LIMIT.total_seconds())}s",
        f"--output-dir={suite.directory}",
        f"--json-report={REPORT}",
        str(find_program(E2E_TEST)),
        "--",
        f"--kubeconfig={suite.kubeconfig}",
        f"--kubectl-path={find_program(KUBECTL)}",
        "--provider=skeleton",
        f"--kubelet-root-dir={suite.kubelet_root}",
        "--num-nodes=1",
        "--minStartupPods=0",
        "--disable-log-dump=true",
        "--dump-logs-on-failure=false",
    )


async def run_suite(
    suite: Suite, selection: Selection, *, say: Callable[[str], None], check: Callable[[], None], clock: Clock
) -> Report:
    """Run the suite once; raises ReportUnreadable if it wrote no report, and whatever `check` raises now and then.

    A run that is cancelled is killed.
    """
    # The kernel ends ginkgo with us, however we end; it is in a session of its own for the sake of Ctrl-C.
    process = await asyncio.create_subprocess_exec(
        shutil.which("setpriv") or "setpriv",
        *("--pdeathsig", "KILL"),
        *build_command(suite, selection),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=clean_environment(os.environ, suite.home),
        cwd=suite.directory,
        start_new_session=True,
        limit=_LONGEST_LINE,
    )
    output = suite.directory / "ginkgo.log"
    try:
        assert process.stdout is not None
        await _follow(process.stdout, output, every=suite.progress_every, say=say, check=check, clock=clock)
        await process.wait()
    finally:
        # The cluster is thrown away, so there is nothing that the suite should put in order.
        if process.returncode is None:
            with suppress(ProcessLookupError):  # it ended at this moment
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return read_report(suite.directory / REPORT, output, process.returncode)


def clean_environment(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the environment without proxies, and without what would lead to another cluster or other images."""
    dropped = ("KUBE", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy", "GINKGO")
    return {key: value for key, value in environment.items() if not key.startswith(dropped)} | {"HOME": str(home)}


def read_report(path: Path, output: Path, code: int | None) -> Report:
    try:
        return parse_report(path.read_bytes())
    except OSError as error:
        said = output.read_text(errors="replace")[-_TAIL:]
        raise ReportUnreadable(f"ginkgo ended with {code} and wrote no report; it said:\n{said}") from error


async def _follow(
    stream: asyncio.StreamReader,
    output: Path,
    *,
    every: timedelta,
    say: Callable[[str], None],
    check: Callable[[], None],
    clock: Clock,
) -> None:
    """Read ginkgo's output to its end; say what fails, and now and then how far it is."""
    progress, started = SpecProgress(), clock.monotonic()
    said = started
    try:
        with output.open("wb") as log:
            while (line := await _next_line(stream, at_most=every)) != b"":
                if line is not None:
                    log.write(line)
                    log.flush()
                    if failed := progress.read(line.decode(errors="replace")):
                        say(f"FAILED {failed}")
                if clock.monotonic() - said >= every.total_seconds():
                    said = clock.monotonic()
                    say(progress.describe(timedelta(seconds=said - started)))
                    check()
    finally:
        say(progress.describe(timedelta(seconds=clock.monotonic() - started)))


async def _next_line(stream: asyncio.StreamReader, *, at_most: timedelta) -> bytes | None:
    """Return the next line, or a piece of one that is too long; empty at the end, None if there is none for a while."""
    try:
        async with asyncio.timeout(at_most.total_seconds()):
            return await stream.readuntil(b"\n")
    except TimeoutError:
        return None
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError as error:
        return await stream.read(max(1, error.consumed))
