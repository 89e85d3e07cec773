from pathlib import Path

import pytest

from klet.cli.install.node_form import search_path
from klet.cli.node.packages import SYSTEM_PATH


@pytest.mark.parametrize(
    ("containerd", "expected"),
    [
        pytest.param("/usr/bin/containerd", SYSTEM_PATH, id="a package's"),
        pytest.param("/opt/c/bin/containerd", f"{SYSTEM_PATH}:/opt/c/bin", id="one elsewhere, with its shim"),
    ],
)
def test_search_path(containerd, expected):
    assert search_path(Path(containerd)) == expected
