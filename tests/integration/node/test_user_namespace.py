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
from klet.app.opening import open_kernel_log
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
is_on = sys.argv[1] == "on"
rule = choose_write_failure(in_user_namespace=inside, is_ignored=is_on)
noswap = find_noswap(Path("/"), in_user_namespace=inside)
try:
    apply_tunables(Unchanged(), TunablePolicy.SET, on_failure=rule)
except KletError as error:
    print(inside, noswap, error)
else:
    print(inside, noswap, "goes on")
try:
    print(open_kernel_log(in_user_namespace=inside, is_optional=is_on, path=Path(sys.argv[2])))
except KletError as error:
    print(error)
"""


def run_rootless(gate, directory):
    """Runs the child in a user namespace of its own; returns what becomes of kernel parameters and of the kernel's log.

    Whether everybody may read the kernel's log is a setting of the machine: this one is readable for root alone.
    """
    log = directory / "kmsg"
    log.touch(mode=0o600)
    command = [sys.executable, "-c", CHILD, gate, str(log)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    if done.stdout == "none\n":
        pytest.skip("no user namespaces: the kernel of this machine does not let nobody make one")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_with_the_gate_kernel_parameters_and_log_are_left_out(tmp_path):
    assert run_rootless("on", tmp_path) == ["True False goes on", "None"]


def test_without_the_gate_they_end_the_agent(tmp_path):
    parameters, log = run_rootless("off", tmp_path)
    assert parameters.startswith("True False [cannot write ")
    assert "/proc/sys/kernel/keys/root_maxbytes" in parameters
    assert "kmsg" in log
    assert log.endswith("(running in UserNS: enable the gate KubeletInUserNamespace)")


def test_this_machine_is_none_and_its_kernel_says_whether_it_knows_noswap(tmp_path):
    machine = MachineReader()
    assert not machine.in_user_namespace()
    release = tuple(int(word) for word in machine.kernel_version().split("-")[0].split(".")[:2])
    known = find_noswap(tmp_path, in_user_namespace=False)
    assert known or release < (6, 4)
    assert list(tmp_path.iterdir()) == []
