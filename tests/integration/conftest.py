"""One private containerd for the whole session; each test gets a client of it and leaves no pod behind.

Tests of what that release lacks have another one, of a later release.
"""

import os
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from klet.aio.clock import SystemClock
from klet.cri.client import connect
from klet.testing.containerd import REQUEST_TIMEOUT, remove_pods, run_containerd, why_impossible
from klet.testing.leftovers import remove_abandoned
from klet.testing.newer_containerd import NewerContainerdMissing, find_newer_containerd

# Short, since the paths of Unix sockets are limited, and fixed, so that the next run finds what a killed one left.
BASE = Path(tempfile.gettempdir()) / "klet-containerd"


def containerd_directory(name):
    if reason := why_impossible():
        pytest.skip(f"skipped: {reason}")
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
    except NewerContainerdMissing as error:
        pytest.skip(f"skipped: {error}")


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
