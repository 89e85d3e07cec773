"""Run commands and tests in virtual machines.

  scripts/vm run -- COMMAND…         in the small machine: this machine's files, a kernel with cgroup version 2
  scripts/vm run --real -- COMMAND…  in a whole Debian: systemd, containerd of its packages, klet from its wheel in
                                     /opt/klet/bin, this checkout in /klet, upstream's programs in /opt/upstream
                                     (--copy-out PATH copies something out of it afterwards)
  scripts/vm shell                   a shell in the whole Debian
  scripts/vm build                   build its disk, if it is not in the cache
  scripts/vm test --real             the tests of the whole machine (tests/machine); more arguments go to pytest
  scripts/vm test --real --set dozen --cached
                                     a dozen of them, if the disk was built before; only klet is built then

The machines run under QEMU: with KVM where it works, else in software. They need root and the Debian packages
qemu-system-x86, busybox-static (small), mmdebstrap, openssh-client (whole). Disks and kernels are kept in $KLET_CACHE
(~/.cache/klet); a machine gets a copy, and nothing of it stays.

Exit code: the command's; 124 after the time limit, 125 if the machine did not come up.
"""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from klet.errors import KletError
from klet.testing.vm.debian import build_disk, cache_size, find_disk, install_klet
from klet.testing.vm.machine import CPUS, MEMORY, whole_machine
from klet.testing.vm.small import SmallMachine
from klet.testing.vm.tests import run_machine_tests

_NOT_UP = 125


def main(arguments: Sequence[str]) -> int:
    options, rest = parse(arguments)
    try:
        if options.action == "build":
            return build()
        if options.action == "test":
            return run_machine_tests(rest, chosen=options.set, cached=options.cached, say=say)
        if options.action == "shell" or options.real:
            with whole_machine(say, memory=options.memory, cpus=options.cpus) as machine:
                if options.action == "shell":
                    return machine.stream("exec bash -l", terminal=True)
                code = machine.stream(" ".join(options.command))
                for path in options.copy_out:
                    machine.copy_out(path, options.into)
                return code
        small = SmallMachine(
            memory=options.memory,
            cpus=options.cpus,
            timeout=options.timeout,
            accelerator=options.accel,
            is_verbose=options.verbose,
        )
        return small.run(options.command)
    except KletError as error:
        say(str(error))
        return _NOT_UP


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        prog="scripts/vm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    run = actions.add_parser("run", help="run a command")
    run.add_argument("--real", action="store_true", help="in the whole Debian")
    run.add_argument("--timeout", type=float, default=600, help="seconds for all, in the small machine (default: 600)")
    run.add_argument("--accel", default="", help="QEMU's accelerator, in place of the best that works")
    run.add_argument("--verbose", action="store_true", help="show the kernel's console and times on standard error")
    run.add_argument(
        "--copy-out",
        action="append",
        default=[],
        metavar="PATH",
        help="with --real: copy a file or a directory out of the machine afterwards; may be repeated",
    )
    run.add_argument("--into", type=Path, default=Path(), metavar="DIR", help="where to (default: here)")
    run.add_argument("command", nargs="+")
    shell = actions.add_parser("shell", help="open a shell in the whole Debian")
    for action in (run, shell):
        action.add_argument("--memory", type=int, default=MEMORY, help=f"memory in MiB (default: {MEMORY})")
        action.add_argument("--cpus", type=int, default=CPUS, help=f"processors (default: {CPUS})")
    actions.add_parser("build", help="build the disk of the whole Debian")
    test = actions.add_parser(
        "test",
        help="run the tests of the whole machine",
        usage="scripts/vm test [-h] --real [--set {all,dozen}] [--cached] [--kubelet upstream] [PYTEST ARGUMENT…]",
        epilog="Everything else goes to pytest: `-k reboot`, `-x`, a file of tests/machine, or `--kubelet upstream`, "
        "which runs the same tests with upstream's kubelet in klet's place.",
    )
    test.add_argument("--real", action="store_true", required=True, help="in the whole Debian")
    test.add_argument("--set", choices=("all", "dozen"), default="all", help="which of them (default: all)")
    test.add_argument("--cached", action="store_true", help="build no disk; say so if it is missing")
    options, rest = parser.parse_known_args(arguments)
    if rest and options.action != "test":
        parser.error(f"unknown arguments: {' '.join(rest)}")
    if options.action == "run" and options.copy_out and not options.real:
        parser.error("--copy-out needs --real: nothing that the small machine writes outlives it")
    return options, rest


def build() -> int:
    """Build what is missing, and say how long it took and how much disk it takes."""
    was_built = find_disk().is_built
    started = time.monotonic()
    disk = build_disk(say)
    install_klet(disk, say)
    took = f"built in {time.monotonic() - started:.0f} s" if not was_built else "is in the cache"
    say(f"the machine {took}; its files take {cache_size() / 2**30:.1f} GiB in {disk.directory}")
    return 0


def say(text: str) -> None:
    sys.stderr.write(f"vm: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(sys.argv[1:]))
