"""The text of the downward API."""

import pytest

from klet.api.quantity import Quantity
from klet.model.downward import format_map, in_units, quoted, split_subscript


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('a"b\\c', r'"a\"b\\c"', id="quotes and backslashes"),
        pytest.param("a\nb\tc", r'"a\nb\tc"', id="breaks"),
        pytest.param("\x01\x7f", r'"\x01\x7f"', id="control characters"),
        pytest.param("für", '"für"', id="letters stay"),
        pytest.param("\u200b\U000e0001", r'"\u200b\U000e0001"', id="invisible characters"),
    ],
)
def test_text_is_quoted_as_go_does(text, expected):
    assert quoted(text) == expected


def test_a_map_is_sorted_and_has_no_last_newline():
    assert format_map({"b": "2", "a": "1"}) == 'a="1"\nb="2"'
    assert format_map({}) == ""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.labels['a']", ("metadata.labels", "a")),
        ("metadata.labels", None),
        ("['a']", None),
        ("metadata.labels['a'", None),
    ],
)
def test_a_subscript_is_split_off(path, expected):
    assert split_subscript(path) == expected


@pytest.mark.parametrize(
    ("amount", "divisor", "resource", "expected"),
    [
        pytest.param("1500m", "1", "cpu", "2", id="cpus are rounded up"),
        pytest.param("1500m", "1m", "cpu", "1500", id="thousandths"),
        pytest.param("64Mi", "1Mi", "memory", "64", id="megabytes"),
        pytest.param("64Mi", "0", "memory", "67108864", id="a divisor of zero is one"),
        pytest.param("64Mi", None, "memory", "67108864", id="no divisor is one"),
    ],
)
def test_amounts_are_in_multiples_of_the_divisor(amount, divisor, resource, expected):
    assert in_units(Quantity.parse(amount), divisor and Quantity.parse(divisor), resource) == expected
