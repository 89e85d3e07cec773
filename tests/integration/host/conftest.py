import os
from pathlib import Path

import pytest

from klet.host import mounts
from klet.host.mounts import Propagation


@pytest.fixture
def root():
    """Skip a test that only root can do."""
    if os.geteuid() != 0:
        pytest.skip("needs root: run the tests as root")


@pytest.fixture
def place(tmp_path: Path):
    """A private tmpfs, so that nothing a test mounts can reach the rest of the machine or stay behind."""
    base = tmp_path / "base"
    base.mkdir()
    mounts.mount("klet-test", base, fs_type="tmpfs", options=["size=1m"])
    mounts.set_propagation(base, Propagation.PRIVATE)
    yield base
    mounts.unmount_tree(base)
    assert not mounts.has_mounts_under(base)
