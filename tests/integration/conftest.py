"""One private containerd for the whole session; each test gets a client of it and leaves no pod behind.

Tests of what that release lacks have another one, of a later release.
"""

import asyncio
import os
import shutil
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.cri.client import connect
from klet.host.cgroups.discover import find_hierarchy
from klet.host.cgroups.manager import CgroupManager, NoUnits
from klet.host.cgroups.metrics import register_cgroups
from klet.host.images import BUSYBOX_IMAGE
from klet.metrics import MetricRegistry
from klet.testing.containerd import REQUEST_TIMEOUT, remove_pods, run_containerd, why_impossible
from klet.testing.debian_packages import PackagesMissing
from klet.testing.leftovers import remove_abandoned
from klet.testing.newer_containerd import find_newer_containerd
from klet.testing.registry.process import find_registry, run_registry
from klet.testing.registry.tokens import PASSWORD, USER

# Short, since the paths of Unix sockets are limited, and fixed, so that the next run finds what a killed one left.
BASE = Path(tempfile.gettempdir()) / "klet-containerd"


@pytest.fixture
def hierarchy():
    """The cgroups of this machine."""
    return find_hierarchy()


@pytest.fixture
def cgroups(hierarchy):
    """Cgroups with the cgroupfs driver; a test makes one of its own, and touches no other."""
    threads = Threads(limit=1)
    yield CgroupManager(
        hierarchy=hierarchy,
        units=NoUnits(),
        threads=threads,
        clock=SystemClock(),
        durations=register_cgroups(MetricRegistry()),
    )
    threads.close()


def containerd_directory(name):
    if reason := why_impossible():
        pytest.skip(reason)
    remove_abandoned(BASE)
    return BASE / f"{os.getpid()}-{name}"


@pytest.fixture
def containerd_base():
    """The directory that holds the directories of all private containerds."""
    return containerd_directory("any").parent


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def containerd():
    async with run_containerd(containerd_directory("session")) as daemon:
        yield daemon


@pytest.fixture(scope="session")
def newer_programs():
    """The programs of a later containerd; fetching them takes some seconds the first time."""
    try:
        return find_newer_containerd()
    except PackagesMissing as error:
        pytest.skip(f"no newer containerd: run scripts/newer-containerd; {error}")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def newer_containerd(newer_programs):
    async with run_containerd(containerd_directory("newer"), programs=newer_programs) as daemon:
        yield daemon


@pytest.fixture
def own_containerd():
    """Runs another containerd, for tests that break it: `async with own_containerd("name") as daemon`."""

    @asynccontextmanager
    async def run(name, **options):
        async with run_containerd(containerd_directory(name), **options) as daemon:
            yield daemon

    return run


@pytest.fixture
async def cri(containerd):
    async with connect(runtime_endpoint=containerd.endpoint, timeout=REQUEST_TIMEOUT) as client:
        yield client
        await remove_pods(client, clock=SystemClock())


@pytest.fixture(scope="session")
def registry_program():
    """Debian's registry; fetching it takes some seconds the first time, where it is not installed."""
    try:
        return find_registry()
    except PackagesMissing as error:
        pytest.skip(f"no registry: it is fetched once Debian's archive can be reached; {error}")


@pytest.fixture
async def registry(tmp_path, registry_program):
    """A registry that lets in only who has a login."""
    (tmp_path / "registry").mkdir()
    async with run_registry(tmp_path / "registry", program=registry_program) as running:
        yield running


@pytest.fixture
async def private_image(containerd, registry):
    """The busybox image in that registry, and under that name not yet on the node."""
    name = f"{registry.address}/team/app:1"

    async def ctr(*arguments):
        program = shutil.which("ctr", path=containerd.path)
        command = (program, "--address", str(containerd.settings.socket), "--namespace", "k8s.io", *arguments)
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()

    await ctr("images", "tag", BUSYBOX_IMAGE, name)
    await ctr("images", "push", "--plain-http", "--user", f"{USER}:{PASSWORD}", name)
    await ctr("images", "rm", name)
    yield name
    await ctr("images", "rm", name)
