import pytest

from klet.server.routes.debug import parse_seconds, parse_verbosity


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 30), ("5", 5), ("-5", 30), ("0", 30), ("x", 30), ("1e3", 30), ("9" * 50, 30), ("400", 400)],
)
def test_seconds(text, expected):
    assert parse_seconds(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4", 4),
        ("", 'strconv.ParseUint: parsing "": invalid syntax'),
        ("3\n", 'strconv.ParseUint: parsing "3\\n": invalid syntax'),
        ("-1", 'strconv.ParseUint: parsing "-1": invalid syntax'),
        ("٣", 'strconv.ParseUint: parsing "٣": invalid syntax'),
        ("4294967296", 'strconv.ParseUint: parsing "4294967296": value out of range'),
        (
            "4294967295",
            'failed set klog.logging.verbosity 4294967295: strconv.ParseInt: parsing "4294967295": value out of range',
        ),
    ],
)
def test_verbosity(text, expected):
    assert parse_verbosity(text) == expected


def test_a_long_number_costs_no_more_than_its_length():
    assert "value out of range" in parse_verbosity("9" * 60_000)
