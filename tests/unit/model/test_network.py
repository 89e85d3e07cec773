"""Addresses of pods: which of them count, and in which order."""

import pytest

from klet.model.network import order_ips


@pytest.mark.parametrize(
    ("ips", "prefer_ipv6", "want"),
    [
        pytest.param(("10.0.0.1", "fd00::1"), False, ("10.0.0.1", "fd00::1"), id="IPv4 first"),
        pytest.param(("10.0.0.1", "fd00::1"), True, ("fd00::1", "10.0.0.1"), id="IPv6 first"),
        pytest.param(("10.0.0.1", "10.0.0.2"), False, ("10.0.0.1",), id="one of each family"),
        pytest.param((), False, (), id="none"),
        pytest.param(
            ("fd00::1", "10.0.0.1", "fd00::2"),
            False,
            ("10.0.0.1", "fd00::1"),
            id="the runtime's order counts within a family",
        ),
        pytest.param(("fd00::1",), False, ("fd00::1",), id="only the other family"),
        pytest.param(("FD00:0::1",), True, ("fd00::1",), id="in canonical form"),
    ],
)
def test_order_ips(ips, prefer_ipv6, want):
    assert order_ips(ips, prefer_ipv6=prefer_ipv6) == want
