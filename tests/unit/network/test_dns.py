"""A pod's name resolution: reading resolv.conf, policies, the pod's wishes, limits."""

import pytest
from msgspec.structs import replace

from klet.api.pod import Pod, PodDNSConfig, PodDNSConfigOption
from klet.model.network import DnsConfig
from klet.network.dns import DnsSettings, DnsWarning, ResolvConfError, decide_dns, find_excess, parse_resolv_conf
from klet.testing.builders import make_pod

HOST = DnsConfig(("1.1.1.1",), ("home", "lan"), ("timeout:2",))
CLUSTER = DnsSettings(cluster_dns=("10.0.0.10",), cluster_domain="cluster.local")
BARE = DnsSettings()
NODE_SEARCHES = ("default.svc.cluster.local", "svc.cluster.local", "cluster.local")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", DnsConfig(), id="nothing"),
        pytest.param(
            "nameserver 1.1.1.1\n  nameserver\t2.2.2.2 extra\n",
            DnsConfig(("1.1.1.1", "2.2.2.2")),
            id="servers add up, further fields are ignored",
        ),
        pytest.param("# nameserver 9.9.9.9\n  #x\n", DnsConfig(), id="comments"),
        pytest.param("; nameserver 9.9.9.9\n", DnsConfig(), id="a semicolon is no keyword"),
        pytest.param("search a b\nsearch c\n", DnsConfig((), ("c",)), id="the last search counts"),
        pytest.param("search a\nsearch\n", DnsConfig(), id="an empty search clears"),
        pytest.param("search a. . b..\n", DnsConfig((), ("a", "b.")), id="dots at the end"),
        pytest.param("domain home\nsortlist 1.2.3.4\n", DnsConfig(), id="other keywords do not reach pods"),
        pytest.param(
            "options ndots:1 rotate\noptions ndots:3\n",
            DnsConfig((), (), ("ndots:3", "rotate")),
            id="options add up, the last of a name counts",
        ),
        pytest.param("nameserver 1.1.1.1\r\nsearch a\r\n", DnsConfig(("1.1.1.1",), ("a",)), id="foreign line ends"),
    ],
)
def test_parsing(text, expected):
    assert parse_resolv_conf(text) == expected


def test_a_nameserver_without_an_address_makes_the_file_invalid():
    with pytest.raises(ResolvConfError) as caught:
        parse_resolv_conf("nameserver 1.1.1.1\nnameserver\n")
    assert str(caught.value) == "nameserver list is empty "


def pod_with(policy: str, *, host_network: bool = False, config: PodDNSConfig | None = None) -> Pod:
    pod = make_pod()
    return replace(pod, spec=replace(pod.spec, dns_policy=policy, host_network=host_network, dns_config=config))


OF_CLUSTER = DnsConfig(("10.0.0.10",), (*NODE_SEARCHES, "home", "lan"), ("ndots:5",))


@pytest.mark.parametrize(
    ("policy", "host_network", "expected"),
    [
        pytest.param("None", False, DnsConfig(), id="none"),
        pytest.param("ClusterFirstWithHostNet", False, OF_CLUSTER, id="cluster, also on the host's network"),
        pytest.param("ClusterFirstWithHostNet", True, OF_CLUSTER, id="cluster on the host's network"),
        pytest.param("ClusterFirst", False, OF_CLUSTER, id="cluster"),
        pytest.param("ClusterFirst", True, HOST, id="cluster does not reach the host's network"),
        pytest.param("Default", False, HOST, id="the host's"),
        pytest.param("Odd", False, OF_CLUSTER, id="anything else is the cluster's"),
    ],
)
def test_policies(policy, host_network, expected):
    decision = decide_dns(pod_with(policy, host_network=host_network), HOST, CLUSTER)
    assert (decision.config, decision.warnings) == (expected, ())


def test_without_a_domain_only_the_hosts_searches_are_left():
    settings = DnsSettings(cluster_dns=("10.0.0.10",))
    assert decide_dns(pod_with("ClusterFirst"), HOST, settings).config.searches == ("home", "lan")


def test_searches_of_the_host_are_not_repeated():
    host = DnsConfig((), ("cluster.local", "home", "home"))
    assert decide_dns(pod_with("ClusterFirst"), host, CLUSTER).config.searches == (*NODE_SEARCHES, "home")


def test_without_a_cluster_server_the_host_answers_and_the_pod_gets_an_event():
    decision = decide_dns(pod_with("ClusterFirst"), HOST, BARE)
    assert decision.config == HOST
    assert decision.warnings == (
        DnsWarning(
            "MissingClusterDNS",
            'pod: "pod_default(uid-1)". kubelet does not have ClusterDNS IP configured and cannot create Pod using '
            '"ClusterFirst" policy. Falling back to "Default" policy.',
        ),
    )


@pytest.mark.parametrize(
    ("policy", "settings", "expected"),
    [
        pytest.param("Default", BARE, DnsConfig(("127.0.0.1",), (".",)), id="no address known"),
        pytest.param(
            "Default",
            DnsSettings(node_ips=("fd00::1", "192.168.0.1")),
            DnsConfig(("::1", "127.0.0.1"), (".",)),
            id="one for each address of the node",
        ),
        pytest.param("ClusterFirst", BARE, DnsConfig(("127.0.0.1",), (".",)), id="also when falling back"),
        pytest.param(
            "ClusterFirst", CLUSTER, DnsConfig(("10.0.0.10",), NODE_SEARCHES, ("ndots:5",)), id="the cluster's"
        ),
        pytest.param("None", BARE, DnsConfig(), id="none stays none"),
    ],
)
def test_a_node_without_a_file(policy, settings, expected):
    assert decide_dns(pod_with(policy), None, settings).config == expected


def option(name: str, value: str | None = None) -> PodDNSConfigOption:
    return PodDNSConfigOption(name=name, value=value)


def test_the_pods_wishes_are_added_and_its_options_win():
    config = PodDNSConfig(
        nameservers=("10.0.0.10", "8.8.8.8"),
        searches=("svc.cluster.local", "own"),
        options=(option("ndots", "2"), option("edns0"), option("empty", "")),
    )
    decided = decide_dns(pod_with("ClusterFirst", config=config), HOST, CLUSTER).config
    assert decided.servers == ("10.0.0.10", "8.8.8.8")
    assert decided.searches == (*NODE_SEARCHES, "home", "lan", "own")
    assert set(decided.options) == {"ndots:2", "edns0", "empty"}


def test_with_no_policy_the_pod_has_only_its_own():
    config = PodDNSConfig(nameservers=("8.8.8.8",), searches=("own",), options=(option("ndots", "1"),))
    decided = decide_dns(pod_with("None", config=config), HOST, CLUSTER).config
    assert decided == DnsConfig(("8.8.8.8",), ("own",), ("ndots:1",))


def searches_of(*names: str) -> tuple[tuple[str, ...], tuple[DnsWarning, ...]]:
    decision = decide_dns(pod_with("Default"), DnsConfig((), names), BARE)
    return decision.config.searches, decision.warnings


def search_warning(line: str) -> tuple[DnsWarning, ...]:
    text = "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: "
    return (DnsWarning("DNSConfigForming", text + line),)


def test_at_most_three_servers():
    decision = decide_dns(pod_with("Default"), DnsConfig(("1", "2", "3", "4")), BARE)
    text = "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 1 2 3"
    assert decision.config.servers == ("1", "2", "3")
    assert decision.warnings == (DnsWarning("DNSConfigForming", text),)


def test_three_servers_are_fine():
    assert decide_dns(pod_with("Default"), DnsConfig(("1", "2", "3")), BARE).warnings == ()


def test_at_most_32_searches():
    names = tuple(f"s{number}" for number in range(33))
    assert searches_of(*names[:32]) == (names[:32], ())
    assert searches_of(*names) == (names[:32], search_warning(" ".join(names[:32])))


def test_long_searches_are_dropped():
    assert searches_of("a", "b" * 253) == (("a", "b" * 253), ())
    assert searches_of("a", "b" * 254, "c") == (("a", "c"), search_warning("a c"))


def test_a_long_line_is_cut_from_the_end():
    names = tuple(letter * 226 for letter in "abcdefghi")  # nine of 226 and eight blanks are 2042
    assert searches_of(*names) == (names, ())
    assert searches_of(*names, "12345") == ((*names, "12345"), ())  # 2048 exactly
    assert searches_of(*names, "123456") == (names, search_warning(" ".join(names)))


def searches(count: int, length: int = 3) -> DnsConfig:
    return DnsConfig(searches=tuple("x" * length for _ in range(count)))


TOO_MANY = "Resolv.conf file '/r' contains search line consisting of more than {} domains!"
TOO_LONG = 'Resolv.conf file "/r" contains a search path which length is more than allowed 253 chars!'
LONG_LINE = "Resolv.conf file '/r' contains search line which length is more than allowed 2048 chars!"


@pytest.mark.parametrize(
    ("host", "has_cluster_domain", "expected"),
    [
        pytest.param(searches(32), False, None, id="as many as may be"),
        pytest.param(searches(33), False, TOO_MANY.format(32), id="one too many"),
        pytest.param(searches(29), True, None, id="as many as may be beside the cluster's"),
        pytest.param(searches(30), True, TOO_MANY.format(29), id="one too many beside the cluster's"),
        pytest.param(searches(1, 253), True, None, id="as long as may be"),
        pytest.param(searches(1, 254), True, TOO_LONG, id="one letter too long"),
        pytest.param(searches(30, 254), True, TOO_MANY.format(29), id="only the first excess is reported"),
        pytest.param(DnsConfig(searches=("x" * 204,) * 9 + ("x" * 203,)), True, None, id="a line that just fits"),
        pytest.param(DnsConfig(searches=("x" * 204,) * 10), True, LONG_LINE, id="a line that does not fit"),
    ],
)
def test_what_of_the_nodes_searches_is_too_much(host, has_cluster_domain, expected):
    assert find_excess(host, file="/r", has_cluster_domain=has_cluster_domain) == expected
