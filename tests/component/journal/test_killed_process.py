"""The journal of a process that is killed."""

import signal
import subprocess
import sys

from klet.journal.records import CauseQuery
from klet.journal.store import Journal
from klet.testing.clock import ManualClock

PROGRAM = """
import asyncio, pathlib, sys
from klet.aio.clock import SystemClock
from klet.journal.store import Journal
from klet.model.causes import Finding, FindingSubject

async def main():
    journal = Journal(path=pathlib.Path(sys.argv[1]), clock=SystemClock())
    await journal.open()
    for number in range(100):
        journal.record(Finding(subject=FindingSubject(name="web"), decider="test", decision=f"Step{number}"))
    await journal.flush()
    print("written", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def run_and_kill(path) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        process.send_signal(signal.SIGKILL)


async def test_what_was_flushed_survives_a_kill(tmp_path):
    path = tmp_path / "journal.db"
    run_and_kill(path)
    journal = Journal(path=path, clock=ManualClock())
    await journal.open()
    causes = await journal.find(CauseQuery(name="web"))
    assert [cause.finding.decision for cause in causes] == [f"Step{number}" for number in range(100)]
    await journal.close()
