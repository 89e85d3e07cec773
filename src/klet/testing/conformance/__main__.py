"""Run upstream's end-to-end suite against klet, or against upstream's kubelet, on a control plane of upstream.

  scripts/conformance                        the default set with klet: [NodeConformance] without what is
                                             Serial, Disruptive, Slow, Flaky, Alpha or of an optional Feature
  scripts/conformance --focus 'Probing'      specs whose names match
  scripts/conformance --only-failed          what failed in the last run
  scripts/conformance --repeat 3             three times, to find specs that do not always end the same way
  scripts/conformance --kubelet upstream     with upstream's kubelet
  scripts/conformance --record               keep the result in the repository; klet is compared with what was kept of
                                             upstream's kubelet, and docs/conformance.md is written from both

The first run builds what is missing (scripts/upstream --help says what that needs) and fetches busybox, bash, curl and
nc of a later Debian release; both are kept in $KLET_CACHE (~/.cache/klet). It needs root, containerd, the CNI plugins and
etcd. Everything runs in directories, on a bridge and in a cgroup of its own, which are gone at the end. The report, the
logs and what the agent said while each failed spec ran stay in the cache.

Exit code: 0 if nothing failed but what the recorded run of upstream's kubelet fails too (without a record: nothing at
all), 1 if other specs failed, 2 for wrong arguments, 3 if the suite could not run, 130 after Ctrl-C.
"""

import argparse
import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from klet.aio.clock import SystemClock
from klet.errors import KletError
from klet.testing.conformance.campaign import Campaign, Request
from klet.testing.conformance.document import DOCUMENT
from klet.testing.conformance.images import find_materials
from klet.testing.conformance.spec_sets import Selection, choose_specs
from klet.testing.conformance.stage import KLET, UPSTREAM, Supplies, check_machine
from klet.testing.conformance.userland import find_userland
from klet.testing.control_plane.build import build_programs
from klet.testing.control_plane.programs import (
    ETCD,
    KUBELET,
    PROGRAMS,
    SUITE,
    VERSION,
    ProgramMissing,
    cache_directory,
    missing_programs,
    program_directory,
)

RECORDS: Final = Path("tests/data/conformance")
PROCS: Final = 6
_FAILED, _UNABLE, _INTERRUPTED = 1, 3, 130


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    try:
        check_machine()
        provide_programs(options.kubelet)
        supplies = Supplies(materials=find_materials(), userland=find_userland())
        return asyncio.run(run_until_told(make_request(options), supplies))
    except KletError as error:
        say(str(error))
        return _UNABLE
    except KeyboardInterrupt:
        return _INTERRUPTED


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/conformance", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kubelet", choices=(KLET, UPSTREAM), default=KLET, help="the agent of the node (default: klet)"
    )
    parser.add_argument("--focus", action="append", default=[], help="run specs whose names match; may be repeated")
    parser.add_argument(
        "--skip", action="append", help="leave out what matches, in place of the default; '' leaves nothing out"
    )
    parser.add_argument("--procs", type=positive, default=PROCS, help=f"specs at the same time (default: {PROCS})")
    parser.add_argument("--repeat", type=positive, default=1, metavar="N", help="run the specs N times")
    parser.add_argument("--only-failed", action="store_true", help="run what failed in the last run")
    parser.add_argument("--record", action="store_true", help=f"keep the result in {RECORDS}/, and write {DOCUMENT}")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="the form of the result")
    options = parser.parse_args(arguments)
    for pattern in (*options.focus, *(options.skip or ())):
        try:
            re.compile(pattern)
        except re.error as error:
            parser.error(f"{pattern!r} is no regular expression: {error}")
    if options.record and (options.focus or options.skip is not None or options.only_failed):
        parser.error("--record is for the default set, without --focus, --skip and --only-failed")
    if options.only_failed and options.focus:
        parser.error("--only-failed chooses the specs, so --focus has no place beside it")
    return options


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def make_request(options: argparse.Namespace) -> Request:
    selection: Selection = choose_specs(
        focus=tuple(options.focus), skip=None if options.skip is None else tuple(options.skip)
    )
    return Request(
        kubelet=options.kubelet,
        selection=selection,
        only_failed=options.only_failed,
        procs=options.procs,
        repeat=options.repeat,
        record=options.record,
        as_json=options.output == "json",
        results=cache_directory() / "conformance" / options.kubelet,
        records=RECORDS / VERSION,
    )


def provide_programs(kubelet: str) -> None:
    """Build what is missing; raises ProgramMissing."""
    needed = [name for name in (*PROGRAMS, *SUITE) if name != KUBELET or kubelet == UPSTREAM]
    # The machine's etcd does as well.
    missing = missing_programs([*needed, *((ETCD,) if shutil.which(ETCD) is None else ())])
    if missing and os.environ.get("KLET_UPSTREAM_BIN"):
        raise ProgramMissing(f"KLET_UPSTREAM_BIN={program_directory()} lacks {', '.join(missing)}")
    if missing:
        build_programs(missing)


async def run_until_told(request: Request, supplies: Supplies) -> int:
    """Run it; the first SIGINT or SIGTERM ends it in order."""
    campaign = Campaign(request=request, supplies=supplies, say=say, clock=SystemClock())
    task = asyncio.current_task()
    assert task is not None
    interrupt = Interrupt(task)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupt)
    try:
        sys.stdout.write(await campaign.run())
    except asyncio.CancelledError:
        if not interrupt.has_come:
            raise
        return _INTERRUPTED
    return 0 if campaign.is_success else _FAILED


class Interrupt:
    """Cancels a task at the first signal; a second one does not disturb the cleaning up."""

    def __init__(self, task: "asyncio.Task[int]") -> None:
        self._task = task
        self.has_come = False

    def __call__(self) -> None:
        if not self.has_come:
            self.has_come = True
            say("stopping, and removing what was started")
            self._task.cancel()


def say(text: str) -> None:
    sys.stderr.write(f"conformance: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
