import pytest

from klet.api.quantity import Quantity
from klet.config.errors import ConfigError
from klet.config.reserved import parse_cpu_set, parse_qos_reserved, parse_reserved


def test_reserved_resources():
    reserved = {"cpu": "200m", "memory": "500Mi", "ephemeral-storage": "1Gi", "pid": "1000"}
    expected = {name: Quantity.parse(text) for name, text in reserved.items()}
    assert parse_reserved(reserved, flag="kube-reserved") == expected


@pytest.mark.parametrize(
    ("reserved", "message"),
    [
        ({"gpu": "1"}, 'cannot reserve "gpu" resource'),
        ({"cpu": "x"}, 'failed to parse quantity "x" for "cpu" resource: quantities must match the regular expression'),
        ({"cpu": "-1"}, 'resource quantity for "cpu" cannot be negative: -1'),
    ],
    ids=["what cannot be reserved", "no quantity", "a negative quantity"],
)
def test_bad_reservation(reserved, message):
    with pytest.raises(ConfigError) as caught:
        parse_reserved(reserved, flag="system-reserved")
    assert str(caught.value).startswith(f"--system-reserved value failed to parse: {message}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", set()), ("0", {0}), ("0-2,7", {0, 1, 2, 7}), ("3,1-1", {1, 3})],
)
def test_cpu_set(text, expected):
    assert parse_cpu_set(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", 'strconv.Atoi: parsing "a": invalid syntax'),
        ("1,", 'strconv.Atoi: parsing "": invalid syntax'),
        ("1-", 'strconv.Atoi: parsing "": invalid syntax'),
        ("3-1", "invalid range 3-1 (3 > 1)"),
        ("0-999999999", 'strconv.Atoi: parsing "999999999": value out of range'),
    ],
)
def test_bad_cpu_set(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_cpu_set(text)
    assert str(caught.value) == message


def test_qos_reserved():
    assert parse_qos_reserved({"memory": "50%"}) == {"memory": 50}


@pytest.mark.parametrize("reserved", [{"cpu": "50%"}, {"memory": "50"}, {"memory": "101%"}, {"memory": "%"}])
def test_bad_qos_reserved(reserved):
    with pytest.raises(ConfigError, match="--qos-reserved value failed to parse: "):
        parse_qos_reserved(reserved)
