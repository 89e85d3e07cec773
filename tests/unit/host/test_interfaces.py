"""The kernel's answers about addresses of interfaces."""

import struct
from ipaddress import ip_address

from klet.host.interfaces import parse_addresses


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
