"""Cgroups in memory, below the real manager."""

import pytest

from klet.aio.threads import Threads
from klet.host.cgroups.manager import CgroupManager, NoUnits
from klet.host.cgroups.metrics import register_cgroups
from klet.metrics import MetricRegistry
from klet.testing.cgroups import MemoryHierarchy
from klet.testing.clock import ManualClock


@pytest.fixture
def hierarchy():
    return MemoryHierarchy()


@pytest.fixture
def cgroups(hierarchy):
    threads = Threads(limit=1)
    yield CgroupManager(
        hierarchy=hierarchy,
        units=NoUnits(),
        threads=threads,
        clock=ManualClock(),
        durations=register_cgroups(MetricRegistry()),
    )
    threads.close()
