"""Which values the fuzzer gives to fields of protobuf messages."""

from random import Random

from google.protobuf.wrappers_pb2 import Int32Value, Int64Value

from klet.testing.fuzz.protobuf import change_message


def values_of(message):
    random = Random(1)
    values = set()
    for _ in range(500):
        change_message(random, message)
        values.add(message.value)
    return values


def test_an_int32_gets_its_extreme_values():
    assert {-1, 0, 2**31 - 1, -(2**31)} <= values_of(Int32Value())


def test_an_int64_gets_its_extreme_values():
    assert {-1, 0, 2**63 - 1, -(2**63)} <= values_of(Int64Value())
