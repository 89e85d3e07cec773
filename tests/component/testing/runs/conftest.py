"""Small test directories, and pytest or the test command on them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

from klet.testing.runs.plugin import NAME as PLUGIN
from klet.testing.runs.records import EndedTest, Event, RecordReader

OPTIONS = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
deadline_grace = 1
"""
PATIENCE = 250
PYTEST = (sys.executable, "-P", "-m", "pytest", "-q", "-p", PLUGIN)
COMMAND = (sys.executable, "-P", "-m", "klet.testing.runs")


@dataclass(frozen=True)
class Ran:
    """What came of it."""

    code: int
    output: str
    events: tuple[Event, ...]

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()

    @property
    def outcomes(self) -> dict[str, str]:
        return {event.test.rpartition("::")[2]: event.outcome for event in self.events if isinstance(event, EndedTest)}

    def stacks_of(self, name: str) -> str:
        """What was printed when that test passed its deadline."""
        _, _, rest = self.output.partition(f"{name} has passed its deadline")
        return rest.partition("\n+++\n")[0]


@pytest.fixture(autouse=True)
def files_of_killed_runs(tmp_path, monkeypatch):
    """Let the files of runs that are killed go with those of the test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def write(directory: Path, files: dict[str, str]) -> None:
    """Make a directory of tests."""
    for name, text in {"pytest.ini": OPTIONS, **files}.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))


def run(directory: Path, *command: str) -> Ran:
    done = subprocess.run(
        command,
        cwd=directory,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
    )
    return Ran(done.returncode, done.stdout, tuple(RecordReader(directory / "record").read()))


@pytest.fixture(scope="module")
def session_of(tmp_path_factory):
    """Runs pytest with the plugin on some files."""

    def run_session(files: dict[str, str], *arguments: str) -> Ran:
        directory = tmp_path_factory.mktemp("tests")
        write(directory, files)
        return run(directory, *PYTEST, "--record=record", *arguments)

    return run_session


@pytest.fixture
def start(tmp_path):
    """Runs pytest, or the test command where `tests` holds some files, by way of another program."""

    def run_by_way(files: dict[str, str], command: str, *arguments: str, started: tuple[str, ...] = ()) -> Ran:
        write(tmp_path, files)
        chosen = (*PYTEST, "--record=record") if command == "pytest" else COMMAND
        return run(tmp_path, *started, *chosen, *arguments)

    return run_by_way


@pytest.fixture(scope="module")
def command_on(tmp_path_factory):
    """Runs the test command where `tests` holds some files."""

    def run_command(files: dict[str, str], *arguments: str) -> Ran:
        directory = tmp_path_factory.mktemp("tests")
        write(directory, files)
        return run(directory, *COMMAND, *arguments)

    return run_command


@pytest.fixture
def running_command(tmp_path):
    """Starts the test command, and leaves it to the test."""

    @contextmanager
    def running(files: dict[str, str], *arguments: str) -> Iterator["subprocess.Popen[str]"]:
        write(tmp_path, files)
        with (
            (tmp_path / "output").open("w") as output,
            subprocess.Popen((*COMMAND, *arguments), cwd=tmp_path, stdout=output, stderr=output) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    return running


@pytest.fixture
def terminal_command(tmp_path):
    """Starts the test command in the foreground of a terminal; gives the process and the other end of the terminal."""

    @contextmanager
    def running(files: dict[str, str], *arguments: str) -> Iterator["tuple[subprocess.Popen[bytes], int]"]:
        write(tmp_path, files)
        ours, theirs = os.openpty()
        command = ("setsid", "--ctty", "--wait", *COMMAND, *arguments)
        with subprocess.Popen(command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs) as process:
            os.close(theirs)
            try:
                yield process, ours
            finally:
                process.kill()
                os.close(ours)

    return running
