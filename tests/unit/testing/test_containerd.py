"""crun where it refuses to run as it is."""

import os

import pytest

from klet.testing.containerd import find_crun, has_mixed_controllers


@pytest.mark.parametrize(
    ("controllers", "expected"),
    [
        pytest.param(None, False, id="no second version"),
        pytest.param("\n", False, id="a second version without controllers"),
        pytest.param("hugetlb\n", True, id="a controller of the second version"),
    ],
)
def test_machines_that_crun_refuses(tmp_path, controllers, expected):
    if controllers is not None:
        (tmp_path / "cgroup.controllers").write_text(controllers)
    assert has_mixed_controllers(tmp_path) is expected
    program = tmp_path / "bin" / "crun"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    found = find_crun(tmp_path, str(program.parent), unified=tmp_path)
    assert found == str(tmp_path / "crun" if expected else program)
    assert os.access(found, os.X_OK)


def test_a_machine_without_crun(tmp_path):
    assert find_crun(tmp_path, str(tmp_path)) is None
