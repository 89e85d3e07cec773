"""Where programs of a later Debian release come from."""

import pytest

from klet.testing.criu import find_criu
from klet.testing.newer_containerd import find_newer_containerd


@pytest.mark.parametrize(
    ("find", "place"),
    [
        pytest.param(find_newer_containerd, "containerd-forky", id="a newer containerd"),
        pytest.param(find_criu, "criu-forky", id="criu"),
    ],
)
def test_what_is_there_is_not_fetched_again(tmp_path, find, place):
    programs = tmp_path / place / "programs"
    programs.mkdir(parents=True)
    assert find(tmp_path) == programs
