"""The machine that the tests run on."""

import os

from klet.host.machine.cache import MachineCache
from klet.host.machine.reader import MachineReader
from klet.host.machine.usage import UsageReader


def test_facts_of_this_machine():
    cache = MachineCache(reader=MachineReader())
    machine = cache.info()
    assert machine.cpus >= machine.agent_cpus > 0
    assert machine.memory > 0
    assert machine.boot_id
    assert machine.cgroup_version in (1, 2)
    assert cache.versions().kernel == os.uname().release


def test_measurements_agree_with_the_facts():
    usage, machine = UsageReader(), MachineReader().info()
    assert 0 < usage.memory().available <= machine.memory
    assert sum(swap.size for swap in usage.swaps()) <= machine.swap + machine.page_size * len(usage.swaps())
