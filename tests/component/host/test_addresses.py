"""Addresses of this machine."""

from collections.abc import Iterator
from datetime import timedelta
from ipaddress import ip_address

import pytest

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.host.addresses import AddressReader, find_default_address, look_up_addresses, read_local_addresses
from klet.model.unknown import Unknown


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads(limit=2)
    yield made
    made.close()


def test_every_machine_has_a_loopback_address():
    assert ip_address("127.0.0.1") in read_local_addresses()


def test_the_address_towards_the_world_is_one_of_the_machine():
    for prefer in (4, 6):
        found = find_default_address(prefer=prefer)
        assert found is None or ip_address(found) in read_local_addresses()


def test_what_the_resolver_says():
    assert "127.0.0.1" in look_up_addresses("localhost")
    assert look_up_addresses("no such name.invalid") == ()
    assert look_up_addresses("a" * 300) == ()


async def test_addresses_as_a_node_status_has_them(threads):
    reader = AddressReader(threads=threads, patience=timedelta(seconds=2), clock=SystemClock())
    found = await reader.read(name="localhost", prefer=4, lookup=True)
    assert ip_address("127.0.0.1") in found.local
    assert ip_address("127.0.0.1") in found.looked_up
    assert isinstance(found.default, Unknown) or found.default in found.local
    assert (await reader.read(name="localhost", prefer=4, lookup=False)).looked_up == ()
