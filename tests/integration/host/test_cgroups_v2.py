"""Cgroups and pods once more under version 2, in a virtual machine where this machine has version 1."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from klet.host.cgroups.discover import find_hierarchy
from klet.host.cgroups.layout import CgroupMode

REPOSITORY = Path(__file__).parents[3]
LIMIT = 600
"""Seconds for the machine and all tests in it."""

# An emulated machine is slow: what depends on the cgroup version, and one whole life of a pod.
TESTS = (
    "tests/integration/host/test_cgroups.py",
    "tests/integration/resources",
    "tests/integration/test_one_pod_by_hand.py::test_a_pod_from_start_to_removal",
    "tests/integration/agent/test_static_pods.py::test_a_pod_runs_from_its_manifest_to_its_removal",
)

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("root")]


@pytest.mark.deadline(LIMIT + 60)
def test_cgroups_in_a_machine_with_version_2():
    if "KLET_VM" in os.environ or find_hierarchy().mode is CgroupMode.UNIFIED:
        pytest.skip("only with cgroup version 1: this machine has version 2, and runs the tests itself")
    if not shutil.which("qemu-system-x86_64"):
        pytest.skip("no qemu-system-x86_64: apt-get install qemu-system-x86")
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    command = [REPOSITORY / "scripts" / "vm", "run", "--timeout", str(LIMIT), "--memory", "3072", "--", *tests]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "needs cgroup version 2" not in done.stdout
