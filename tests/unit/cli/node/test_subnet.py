from ipaddress import IPv4Network, IPv6Network

import pytest

from klet.cli.node.subnet import (
    IPV4_POOLS,
    choose_ipv6_subnet,
    choose_subnet,
    gateway,
    has_global_ipv6,
    parse_ipv4_routes,
    parse_ipv6_routes,
)

PROC_NET_ROUTE = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
tun0\t0000530A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
"""
PROC_NET_IPV6_ROUTE = (
    "fd0b8d3c5a2e00000000000000000000 40 00000000000000000000000000000000 00 "
    "00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0\n"
    "00000000000000000000000000000000 00 00000000000000000000000000000000 00 "
    "00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n"
)


def nets(*texts):
    return tuple(IPv4Network(text) for text in texts)


@pytest.mark.parametrize(
    ("routes", "tag", "expected"),
    [
        pytest.param((), "", "10.83.0.0/24", id="a machine without routes gets the first"),
        pytest.param(nets("0.0.0.0/0"), "", "10.83.0.0/24", id="a default route takes nothing"),
        pytest.param(nets("10.83.0.0/24"), "", "10.83.1.0/24", id="a taken subnet is passed over"),
        pytest.param(nets("10.83.0.128/25"), "", "10.83.1.0/24", id="a part of it counts as taken"),
        pytest.param(nets("10.83.1.7/32"), "", "10.83.0.0/24", id="a neighbour does not matter"),
        pytest.param(nets("10.0.0.0/8"), "", "172.29.0.0/24", id="a taken pool sends to the next"),
        pytest.param(nets("10.0.0.0/8", "172.16.0.0/12"), "", "192.168.0.0/24", id="the last pool"),
        pytest.param((), "00000005", "10.83.5.0/24", id="a node with a tag begins elsewhere"),
        pytest.param(nets("10.83.5.0/24"), "00000005", "10.83.6.0/24", id="and goes on from there"),
        pytest.param(nets("10.83.255.0/24"), "000000ff", "10.83.0.0/24", id="around the end of the pool"),
    ],
)
def test_choose_subnet(routes, tag, expected):
    assert choose_subnet(routes, tag=tag) == IPv4Network(expected)


def test_no_subnet_is_free():
    assert choose_subnet(IPV4_POOLS, tag="") is None


def test_ipv6_subnets_are_unique_local_and_differ_by_node():
    one, other = choose_ipv6_subnet((), tag=""), choose_ipv6_subnet((), tag="0000abcd")
    assert one.subnet_of(IPv6Network("fd00::/8"))
    assert one.prefixlen == 64
    assert one != other
    assert choose_ipv6_subnet((one,), tag="") not in {one, None}


def test_routes_are_read_from_the_kernel():
    assert parse_ipv4_routes(PROC_NET_ROUTE) == nets("0.0.0.0/0", "192.0.2.0/24", "10.83.0.0/16")
    assert parse_ipv6_routes(PROC_NET_IPV6_ROUTE) == (IPv6Network("fd0b:8d3c:5a2e::/64"), IPv6Network("::/0"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", False, id="no IPv6 at all"),
        pytest.param("00000000000000000000000000000001 01 80 10 80       lo\n", False, id="loopback alone"),
        pytest.param("fe80000000000000e4e59afffe6f5b1c 02 40 20 80     eth0\n", False, id="link-local alone"),
        pytest.param("20010db8000000000000000000000002 02 40 00 80     eth0\n", True, id="a global address"),
        pytest.param("fd000000000000000000000000000001 05 40 00 80    klet0\n", False, id="klet's own bridge"),
    ],
)
def test_has_global_ipv6(text, expected):
    assert has_global_ipv6(text) is expected


def test_gateway_is_the_first_address():
    assert str(gateway(IPv4Network("10.83.4.0/24"))) == "10.83.4.1"
