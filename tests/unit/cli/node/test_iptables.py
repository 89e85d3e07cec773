import pytest

from klet.cli.node.iptables import SHARED_CHAINS, container_chains, parse_save, plan_cleanup, shared_chains

HOST = """\
*filter
:INPUT ACCEPT [0:0]
-A INPUT -s 198.51.100.7/32 -j DROP
COMMIT
"""
HOOKS = """\
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ
-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE
-A CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x2000/0x2000
"""


def nat(*rules, chains=()):
    heads = "".join(f":{chain} - [0:0]\n" for chain in ("POSTROUTING", *SHARED_CHAINS, *chains))
    return f"*nat\n{heads}{HOOKS}{''.join(rule + chr(10) for rule in rules)}COMMIT\n"


def pod_rules(network, pod):
    return (
        f'-A POSTROUTING -s 10.83.0.2/32 -m comment --comment "name: \\"{network}\\" id: \\"{pod}\\"" -j CNI-{pod}',
        f'-A CNI-HOSTPORT-DNAT -m comment --comment "dnat name: \\"{network}\\" id: \\"{pod}\\"" -j CNI-DN-{pod}',
        f"-A CNI-DN-{pod} -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.83.0.2:80",
        f"-A CNI-DN-{pod} -s 10.83.0.0/24 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK",
    )


def chains_of(pod):
    return (f"CNI-{pod}", f"CNI-DN-{pod}")


def clean(text, *, network="klet", keep=frozenset()):
    return plan_cleanup(parse_save(text), network=network, keep=keep)


def test_a_host_without_our_rules_is_left_alone():
    assert clean(HOST) == ""


def test_a_networks_rules_and_chains_go_and_the_shared_ones_stay_when_they_were_there_before():
    plan = clean(nat(*pod_rules("klet", "a"), chains=chains_of("a")), keep=frozenset(SHARED_CHAINS))
    jump, dnat, *_ = pod_rules("klet", "a")
    assert plan.splitlines() == [
        "*nat",
        "-D" + jump[2:],
        "-D" + dnat[2:],
        "-F CNI-DN-a",
        "-F CNI-a",
        "-X CNI-DN-a",
        "-X CNI-a",
        "COMMIT",
    ]


def test_shared_chains_go_with_the_last_network():
    plan = clean(nat(*pod_rules("klet", "a"), chains=chains_of("a"))).splitlines()
    assert "-D PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT" in plan
    assert '-D POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ' in plan
    for chain in (*SHARED_CHAINS, "CNI-a", "CNI-DN-a"):
        assert f"-X {chain}" in plan
    # A rule inside a chain that is flushed needs no line of its own.
    assert not any(line.startswith("-D CNI-") for line in plan)


def test_shared_chains_go_when_only_they_are_left():
    assert clean(nat()).count("-X") == len(SHARED_CHAINS)


def test_another_network_keeps_its_rules_and_the_shared_chains():
    text = nat(*pod_rules("klet", "a"), *pod_rules("klet-2", "b"), chains=(*chains_of("a"), *chains_of("b")))
    plan = clean(text)
    assert "CNI-a" in plan
    assert "CNI-b" not in plan
    assert "CNI-DN-b" not in plan
    assert "HOSTPORT-MASQ" not in plan
    assert clean(text, network="klet-3").splitlines() == []


def test_a_chain_that_a_plugin_left_half_way_is_known_by_its_hash():
    own = container_chains("klet-ba0ade57", ["9d724113ef6f336346c6375a0b9559bab0e1d16b131b1ca9149013474c836804"])
    assert own == {"CNI-3bf87c951a9373b92c3c8e34", "CNI-DN-3bf87c951a9373b92c3c8"}
    text = "*nat\n:CNI-3bf87c951a9373b92c3c8e34 - [0:0]\n:CNI-other - [0:0]\nCOMMIT\n"
    plan = plan_cleanup(parse_save(text), network="klet-ba0ade57", keep=frozenset(), own=own)
    assert plan.splitlines() == [
        "*nat",
        "-F CNI-3bf87c951a9373b92c3c8e34",
        "-X CNI-3bf87c951a9373b92c3c8e34",
        "COMMIT",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(HOST, frozenset(), id="a host without CNI"),
        pytest.param(nat(), frozenset(SHARED_CHAINS), id="a host that had them"),
    ],
)
def test_shared_chains(text, expected):
    assert shared_chains(parse_save(text)) == expected
