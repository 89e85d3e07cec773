"""The integration tests that are marked for it, run inside the whole machine: its own cgroups, mounts and kernel."""

import pytest

from klet.testing.vm.debian import TEST_PACKAGES, TREE, VENV

DIRECTORIES = "tests/integration/host tests/integration/resources tests/integration/runtime tests/integration/volumes"


@pytest.mark.usefixtures("only_klet")
def test_marked_integration_tests_pass_in_the_machine(machine):
    command = (
        f"cd {TREE} && HYPOTHESIS_STORAGE_DIRECTORY=/tmp/hypothesis KLET_VM=1 PYTHONPATH={TEST_PACKAGES}"
        f" PATH={VENV}/bin:$PATH {VENV}/bin/python -P -m pytest -q -p no:cacheprovider -m real_machine {DIRECTORIES}"
    )
    result = machine.run(command, timeout=1700, check=False)
    assert result.code == 0, result.output[-8000:] + result.errors[-2000:]
    assert " passed" in result.output
    # Everything that could be missing is there, and the machine has cgroup version 2 alone.
    skipped = [line for line in result.output.splitlines() if line.startswith("SKIPPED")]
    assert [line for line in skipped if "only with cgroup version 1" not in line] == []
