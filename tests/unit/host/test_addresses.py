import struct
from ipaddress import ip_address

import pytest

from klet.host.addresses import find_node_addresses, parse_addresses


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(["192.0.2.7"], ("192.0.2.7",), id="one"),
        pytest.param(["192.0.2.7", " 2001:db8::7"], ("192.0.2.7", "2001:db8::7"), id="one of each family"),
        pytest.param(["0.0.0.0", "2001:db8::7"], ("2001:db8::7",), id="all zeros is none"),
    ],
)
def test_addresses_that_were_given(given, expected):
    assert find_node_addresses(given) == expected


def message(kind: int, body: bytes) -> bytes:
    padded = body + b"\0" * (-len(body) % 4)
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 1, 0) + padded


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def address(*attributes: bytes) -> bytes:
    return message(20, struct.pack("=BBBBI", 2, 24, 0, 0, 3) + b"".join(attributes))


FOUR = ip_address("10.0.0.5").packed
PEER = ip_address("10.0.0.9").packed
SIX = ip_address("fd00::5").packed


def test_addresses_of_both_families():
    answer = address(attribute(1, FOUR), attribute(2, FOUR), attribute(3, b"eth0\0")) + address(attribute(1, SIX))
    assert list(parse_addresses(answer)) == [ip_address("10.0.0.5"), ip_address("fd00::5")]


def test_of_a_pair_of_ends_ours_counts():
    assert list(parse_addresses(address(attribute(1, PEER), attribute(2, FOUR)))) == [ip_address("10.0.0.5")]


def test_other_messages_and_broken_ones_say_nothing():
    assert list(parse_addresses(message(3, b"\0" * 4))) == []
    assert list(parse_addresses(message(20, b""))) == []
    assert list(parse_addresses(b"\0" * 16)) == []
    assert list(parse_addresses(address(b"\0\0\0\0"))) == []
