import os
import subprocess

import pytest

from klet.host.cgroups.names import CgroupName
from klet.host.cgroups.resources import CgroupResources
from klet.resources.names import pods_root


@pytest.fixture
def root():
    """Skip a test that only root can do."""
    if os.geteuid() != 0:
        pytest.skip("needs root: run the tests as root")


@pytest.fixture
async def top(cgroups):
    """A cgroup of our own, gone afterwards with all below it."""
    name = CgroupName((f"klet-test-pods-{os.getpid()}",))
    await cgroups.create(name, CgroupResources())
    yield name
    await cgroups.kill_all(name)
    await cgroups.destroy(name)
    assert not cgroups.exists(name)


@pytest.fixture
def kubepods(top):
    """The pods of a node of our own."""
    return pods_root(top)


@pytest.fixture
def sleeper():
    """A process, not yet in a cgroup of ours."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()
