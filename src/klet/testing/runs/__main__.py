"""Run the tests: all of them in parts, or with arguments what pytest makes of these (see scripts/test).

One line says what begins and when, one now and then how far it is, one for each reason what was skipped and why, one
for each test that failed, and the last one everything in numbers. Exit code: 0 if all passed, 1 if something failed,
5 if the arguments choose no test, 130 after Ctrl-C.
"""

import asyncio
import io
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from klet.aio.clock import SystemClock
from klet.testing.runs.console import Console
from klet.testing.runs.part import Patience
from klet.testing.runs.plan import plan_arguments, plan_whole
from klet.testing.runs.signals import restore_signals
from klet.testing.runs.suite import SuiteRun, run_until_interrupted

TESTS: Final = Path("tests")


def main(arguments: Sequence[str]) -> int:
    restore_signals()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Tests print what no terminal may be able to show.
        sys.stdout.reconfigure(errors="replace")
    clock = SystemClock()
    console = Console(
        output=sys.stdout,
        is_terminal=sys.stdout.isatty(),
        is_shared=bool(arguments),
        width=shutil.get_terminal_size().columns,
        clock=clock,
    )
    stages = plan_arguments(arguments) if arguments else plan_whole(TESTS)
    with tempfile.TemporaryDirectory(prefix="klet-test-") as directory:
        run = SuiteRun(stages=stages, directory=Path(directory), console=console, patience=Patience(), clock=clock)
        return asyncio.run(run_until_interrupted(run))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
