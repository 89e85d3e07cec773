import pytest

from klet.host.addresses import find_node_addresses


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
