from collections.abc import Mapping
from datetime import timedelta

import pytest

from klet.api.quantity import Quantity
from klet.config.decode import decode, encode
from klet.config.errors import BadField
from klet.config.sections import Section, TimeOrDuration, UInt32


class Inner(Section, frozen=True, kw_only=True):
    wait: timedelta = timedelta()
    size: Quantity | None = None


class Flushed(Section, frozen=True, kw_only=True):
    every: TimeOrDuration = timedelta()


class Outer(Section, frozen=True, kw_only=True):
    is_on: bool = False
    level: UInt32 = 0
    names: tuple[str, ...] = ()
    shares: Mapping[str, float] = {}
    inner: Inner = Inner()
    more: tuple[Inner, ...] = ()


def test_decode_reads_every_type():
    fields = {"isOn": True, "level": 3, "names": ["a"], "shares": {"a": 1}, "inner": {"wait": "90s"},
              "more": [{"size": "1Ki"}, {"size": 5}]}  # fmt: skip
    assert decode(fields, Outer).value == Outer(
        is_on=True,
        level=3,
        names=("a",),
        shares={"a": 1.0},
        inner=Inner(wait=timedelta(seconds=90)),
        more=(Inner(size=Quantity.parse("1Ki")), Inner(size=Quantity.parse("5"))),
    )


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param(0, timedelta(), id="as kubeadm writes what is not set"),
        pytest.param(5_000_000_000, timedelta(seconds=5), id="nanoseconds"),
        pytest.param("5s", timedelta(seconds=5), id="text"),
    ],
)
def test_a_duration_that_may_be_a_number(written, expected):
    assert decode({"every": written}, Flushed).value == Flushed(every=expected)


@pytest.mark.parametrize("written", [True, 1.5, []])
def test_a_duration_that_is_neither_text_nor_a_whole_number(written):
    with pytest.raises(BadField, match="expected a duration"):
        decode({"every": written}, Flushed)


def test_unknown_fields_are_named_by_their_path():
    fields = {"colour": 1, "inner": {"x": 1}, "more": [{}, {"y": 1}]}
    assert decode(fields, Outer).unknown == ("colour", "inner.x", "more[1].y")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"isOn": 1}, 'field "isOn": expected a bool, got a number'),
        ({"level": True}, 'field "level": expected an integer, got a bool'),
        ({"level": 1.5}, 'field "level": expected an integer, got a number'),
        ({"level": -1}, 'field "level": -1 is outside 0 to 4294967295'),
        ({"names": "a"}, 'field "names": expected a list, got a string'),
        ({"names": [None]}, 'field "names[0]": expected a string, got a null'),
        ({"shares": {"a": "b"}}, 'field "shares.a": expected a number, got a string'),
        ({"shares": []}, 'field "shares": expected an object, got a list'),
        ({"inner": 5}, 'field "inner": expected an object, got a number'),
        ({"inner": {"wait": 5}}, 'field "inner.wait": expected a duration such as "1m30s", got a number'),
        ({"inner": {"wait": "5"}}, 'field "inner.wait": time: missing unit in duration "5"'),
        ({"more": [{"size": {}}]}, 'field "more[0].size": expected a quantity such as "100Mi", got a object'),
    ],
)
def test_a_bad_value_is_named_by_its_path(fields, message):
    with pytest.raises(BadField) as caught:
        decode(fields, Outer)
    assert str(caught.value) == message


def test_encode_leaves_out_what_is_empty_but_objects_and_durations():
    assert encode(Outer()) == {"inner": {"wait": "0s"}}


def test_encode_keeps_the_zeros_it_is_asked_to():
    assert encode(Outer(), keep_zero=frozenset({"isOn", "names"})) == {
        "isOn": False,
        "names": [],
        "inner": {"wait": "0s"},
    }


def test_what_is_encoded_decodes_to_the_same():
    value = Outer(
        is_on=True, shares={"a": 0.5}, more=(Inner(wait=timedelta(milliseconds=1), size=Quantity.parse("3M")),)
    )
    assert decode(encode(value), Outer).value == value
