"""A rootless agent: a process in a user namespace of somebody who is not root of the machine."""

import subprocess
import sys

import pytest

from klet.host.machine.reader import MachineReader
from klet.volumes.host_mounter import find_noswap

CHILD = """
import ctypes
import os
import sys
from pathlib import Path
from klet.errors import KletError
from klet.host.machine.reader import MachineReader
from klet.host.sysctls import Sysctls
from klet.node.kernel_tunables import TUNABLES, TunablePolicy, apply_tunables, choose_write_failure
from klet.volumes.host_mounter import find_noswap

NOBODY, NEW_USER, DUMPABLE = 65534, 0x10000000, 4

class Unchanged:
    # Every parameter looks wrong, and only its present value is ever written.
    def read(self, name):
        return TUNABLES[name] + 1

    def write(self, name, value):
        Sysctls().write(name, Sysctls().read(name))

def enter():
    # Imported before: nobody may not read the interpreter's own directory.
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(DUMPABLE, 1)
    if libc.unshare(NEW_USER):
        print("none")
        sys.exit()
    Path("/proc/self/uid_map").write_text(f"0 {NOBODY} 1")

enter()
inside = MachineReader().in_user_namespace()
rule = choose_write_failure(in_user_namespace=inside, is_ignored=sys.argv[1] == "on")
noswap = find_noswap(Path("/"), in_user_namespace=inside)
try:
    apply_tunables(Unchanged(), TunablePolicy.SET, on_failure=rule)
except KletError as error:
    print(inside, noswap, error)
else:
    print(inside, noswap, "goes on")
"""


def run_rootless(gate):
    """Runs the child in a user namespace of its own; returns whether it goes on."""
    command = [sys.executable, "-c", CHILD, gate]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    if done.stdout == "none\n":
        pytest.skip("no user namespaces: the kernel of this machine does not let nobody make one")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_with_the_gate_kernel_parameters_that_cannot_be_written_are_ignored():
    assert run_rootless("on") == "True False goes on"


def test_without_the_gate_they_end_the_agent():
    told = run_rootless("off")
    assert told.startswith("True False [cannot write ")
    assert "/proc/sys/kernel/keys/root_maxbytes" in told


def test_this_machine_is_none_and_its_kernel_says_whether_it_knows_noswap(tmp_path):
    machine = MachineReader()
    assert not machine.in_user_namespace()
    release = tuple(int(word) for word in machine.kernel_version().split("-")[0].split(".")[:2])
    known = find_noswap(tmp_path, in_user_namespace=False)
    assert known or release < (6, 4)
    assert list(tmp_path.iterdir()) == []
