import pytest

from klet.config.errors import ConfigError
from klet.config.flags import (
    KubeletFlags,
    check_start_flags,
    choose_node_name,
    clean_path,
    parse_node_ips,
    validate_kubelet_flags,
)

ALLOWED = (
    "beta.kubernetes.io/arch, beta.kubernetes.io/instance-type, beta.kubernetes.io/os, "
    "failure-domain.beta.kubernetes.io/region, failure-domain.beta.kubernetes.io/zone, kubernetes.io/arch, "
    "kubernetes.io/hostname, kubernetes.io/os, node.kubernetes.io/instance-type, topology.kubernetes.io/region, "
    "topology.kubernetes.io/zone"
)


@pytest.mark.parametrize(
    "key",
    [
        *ALLOWED.split(", "),
        "example.com/x",
        "plain",
        "node.kubernetes.io/x",
        "kubelet.kubernetes.io/x",
        "sub.node.kubernetes.io/x",
        "notkubernetes.io/x",
    ],
)
def test_allowed_label(key):
    validate_kubelet_flags(KubeletFlags(node_labels={key: "v"}))


def test_other_labels_of_kubernetes_are_refused_in_order():
    labels = {"node-role.kubernetes.io/x": "", "app.k8s.io/b": "", "k8s.io/a": "", "fine": "!"}
    with pytest.raises(ConfigError) as caught:
        validate_kubelet_flags(KubeletFlags(node_labels=labels))
    assert str(caught.value) == (
        "unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: "
        "[app.k8s.io/b k8s.io/a node-role.kubernetes.io/x]\n"
        "--node-labels in the 'kubernetes.io' namespace must begin with an allowed prefix "
        f"(kubelet.kubernetes.io, node.kubernetes.io) or be in the specifically allowed set ({ALLOWED})"
    )


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"a b": "v"}, "invalid node labels: 'a b' - name part must consist of alphanumeric characters"),
        ({"a": "v w"}, "invalid node labels: 'v w' - a valid label must be an empty string or consist of"),
    ],
)
def test_malformed_labels(labels, message):
    with pytest.raises(ConfigError) as caught:
        validate_kubelet_flags(KubeletFlags(node_labels=labels))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", [], id="none"),
        pytest.param(" 1.2.3.4 ", ["1.2.3.4"], id="blanks around"),
        pytest.param("01.2.3.004", ["1.2.3.4"], id="leading zeros"),
        pytest.param("1.2.3", [], id="too short"),
        pytest.param("1.2.3.0/24", [], id="a network"),
        pytest.param("blah", [], id="a word"),
        pytest.param("1.2.3.4,not-an-IP", ["1.2.3.4"], id="a word beside an address"),
        pytest.param("abcd::ef01 , 1.2.3.4, junk", ["abcd::ef01", "1.2.3.4"], id="both families, IPv6 first"),
        pytest.param("::", ["::"], id="any IPv6 address"),
    ],
)
def test_node_ips(text, expected):
    assert [str(address) for address in parse_node_ips(text)] == expected


@pytest.mark.parametrize(
    ("text", "provider", "message"),
    [
        ("1.2.3.4,5.6.7.8", "", "must contain either a single IP or a dual-stack pair of IPs"),
        ("1.2.3.4,abcd::1,5.6.7.8", "", "must contain either a single IP or a dual-stack pair of IPs"),
        ("1.2.3.4,::", "", "dual-stack node IP cannot include '0.0.0.0' or '::'"),
        ("1.2.3.4,abcd::1", "cloudy", "dual-stack not supported in this configuration"),
    ],
)
def test_bad_node_ips(text, provider, message):
    with pytest.raises(ConfigError) as caught:
        parse_node_ips(text, cloud_provider=provider)
    assert str(caught.value) == f'bad --node-ip "{text}": {message}'


@pytest.mark.parametrize(
    ("override", "hostname", "expected"),
    [("", "Host.Example", "host.example"), (" Node-1 ", "host", "node-1"), ("10.0.0.1", "host", "10.0.0.1")],
)
def test_node_name(override, hostname, expected):
    assert choose_node_name(KubeletFlags(hostname_override=override), hostname=hostname) == expected


@pytest.mark.parametrize("name", ["../x", "a b", "-a", "a_b", "a..b", "ä", "x" * 254, "a\nb", "a/b"])
def test_a_name_that_no_pod_could_end_in_is_refused(name):
    with pytest.raises(ConfigError, match=r"(?s)^--hostname-override \".*\" cannot be the name of a node: "):
        choose_node_name(KubeletFlags(hostname_override=name), hostname="host")


def test_such_a_name_of_the_host_is_refused_with_the_way_out():
    with pytest.raises(ConfigError, match=r"^the host's name, without --hostname-override, \"my_host\" cannot"):
        choose_node_name(KubeletFlags(), hostname="My_Host")


def test_blank_node_name_is_refused():
    with pytest.raises(ConfigError, match="empty hostname is invalid"):
        choose_node_name(KubeletFlags(hostname_override="  "), hostname="host")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (KubeletFlags(root_dir=""), 'invalid root directory "": --root-dir must not be empty'),
        (
            KubeletFlags(cloud_provider="aws"),
            (
                'cloud provider "aws" was specified, but built-in cloud providers are '
                "disabled. Please set --cloud-provider=external and migrate to an external cloud provider"
            ),
        ),
        (KubeletFlags(exit_on_lock_contention=True), "cannot exit on lock file contention: no lock file specified"),
    ],
)
def test_start_flags(flags, message):
    with pytest.raises(ConfigError) as caught:
        check_start_flags(flags)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("path", "expected"),
    [("", ""), ("/a/", "/a"), ("//a//b/../c", "/a/c"), ("a/./b", "a/b"), ("/..", "/")],
)
def test_clean_path(path, expected):
    assert clean_path(path) == expected
