"""Runs the tests of the whole machine (`tests/machine`) with pytest, and says how long they took."""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from klet.testing.vm.debian import REPOSITORY, build_disk, cache_size, find_disk, install_klet
from klet.testing.vm.machine import why_impossible

_DIRECTORY = "tests/machine"


def run_machine_tests(arguments: Sequence[str], *, chosen: str, cached: bool, say: Callable[[str], None]) -> int:
    """Run the tests, after building what they need unless told to use the cache alone; return pytest's exit code."""
    if cached and (reason := why_skipped()):
        say(f"skipped: {reason}")
        return 0
    disk = build_disk(say)
    install_klet(disk, say)
    started = time.monotonic()
    command = [sys.executable, "-P", "-m", "pytest", *choose_tests(arguments, chosen=chosen)]
    code = subprocess.run(command, cwd=REPOSITORY, check=False).returncode
    say(f"the tests took {time.monotonic() - started:.0f} s; {cache_size() / 2**30:.1f} GiB are cached")
    return code


def choose_tests(arguments: Sequence[str], *, chosen: str) -> list[str]:
    """Return pytest's arguments: all tests of the machine, unless the arguments name files or tests of it."""
    # Not every word without a dash is one: `-k reboot`, `--kubelet upstream`.
    names_tests = any(word.startswith(_DIRECTORY) for word in arguments)
    selection = ["-m", "dozen"] if chosen == "dozen" else []
    return [*([] if names_tests else [_DIRECTORY]), *selection, *arguments]


def why_skipped() -> str:
    """Return why the tests cannot run without building or fetching; empty if they can."""
    if reason := why_impossible():
        return reason
    return "" if find_disk().is_built else "no disk in the cache; scripts/vm build makes it"
