"""Addresses of this machine."""

from ipaddress import ip_address

from klet.host.addresses import find_default_address, look_up_addresses
from klet.host.interfaces import read_local_addresses


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
