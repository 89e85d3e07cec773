import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klet.api.node import NodeAddress
from klet.certs.messages import KeyAlgorithm, Purpose, Template
from klet.certs.templates import (
    SIGNERS,
    build_bootstrap_name,
    build_client_template,
    build_serving_template,
    build_usages,
    canonical_ip,
)

PUBLIC_KEY = base64.b64decode(
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEaxfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpZP40Li/hp/m47n60p8D54WK84zV2sx"
    "Xs7LtkBoN79R9Q=="
)


def addresses(*pairs):
    return tuple(NodeAddress(type=kind, address=address) for kind, address in pairs)


def test_a_client_certificate_names_the_node():
    expected = Template(common_name="system:node:edge-1", organizations=("system:nodes",))
    assert build_client_template("edge-1") == expected


@pytest.mark.parametrize(
    ("given_addresses", "names", "ips"),
    [
        pytest.param(
            addresses(("InternalIP", "10.0.0.2"), ("Hostname", "edge-1")),
            ("edge-1",),
            ("10.0.0.2",),
            id="a host name is a DNS name",
        ),
        pytest.param(addresses(("Hostname", "10.0.0.2")), (), ("10.0.0.2",), id="a host name may be an address"),
        pytest.param(
            addresses(("ExternalIP", "9.9.9.9"), ("InternalIP", "10.0.0.2"), ("InternalIP", "2001:DB8::1")),
            (),
            ("10.0.0.2", "2001:db8::1", "9.9.9.9"),
            id="addresses are sorted as text",
        ),
        pytest.param(
            addresses(("InternalDNS", "b"), ("ExternalDNS", "a"), ("Hostname", "b"), ("InternalIP", "10.0.0.2")),
            ("a", "b"),
            ("10.0.0.2",),
            id="each name once, sorted",
        ),
        pytest.param(
            addresses(("InternalIP", "10.0.0.2"), ("InternalIP", "nonsense"), ("Hostname", ""), ("Other", "x")),
            (),
            ("10.0.0.2",),
            id="what is no address, empty or of another type is left out",
        ),
        pytest.param(
            addresses(("InternalIP", "010.0.0.02"), ("InternalIP", "::ffff:10.0.0.2")),
            (),
            ("10.0.0.2",),
            id="one address written in several ways counts once",
        ),
        pytest.param(
            addresses(("InternalDNS", "10.0.0.3"), ("InternalIP", "10.0.0.2")),
            ("10.0.0.3",),
            ("10.0.0.2",),
            id="what is given as DNS name stays one",
        ),
    ],
)
def test_a_serving_certificate_names_the_addresses(given_addresses, names, ips):
    assert build_serving_template("edge-1", given_addresses, allow_dns_only=False) == Template(
        common_name="system:node:edge-1", organizations=("system:nodes",), dns_names=names, ips=ips
    )


@pytest.mark.parametrize(
    ("given_addresses", "allow_dns_only", "is_made"),
    [
        pytest.param((), False, False, id="no address, no request"),
        pytest.param((), True, False, id="no address, no request, with the gate too"),
        pytest.param(addresses(("Hostname", "edge-1")), False, False, id="a name alone is not enough"),
        pytest.param(addresses(("Hostname", "edge-1")), True, True, id="a name alone is enough with the gate"),
    ],
)
def test_nothing_is_requested_too_early(given_addresses, allow_dns_only, is_made):
    template = build_serving_template("edge-1", given_addresses, allow_dns_only=allow_dns_only)
    assert (template is not None) is is_made


@pytest.mark.parametrize(
    ("purpose", "algorithm", "expected"),
    [
        (Purpose.CLIENT, KeyAlgorithm.ECDSA, ("digital signature", "client auth")),
        (Purpose.CLIENT, KeyAlgorithm.RSA, ("digital signature", "client auth", "key encipherment")),
        (Purpose.SERVER, KeyAlgorithm.ECDSA, ("digital signature", "server auth")),
        (Purpose.SERVER, KeyAlgorithm.RSA, ("digital signature", "server auth", "key encipherment")),
    ],
)
def test_usages(purpose, algorithm, expected):
    assert build_usages(purpose, algorithm) == expected


def test_signers():
    assert SIGNERS == {
        Purpose.CLIENT: "kubernetes.io/kube-apiserver-client-kubelet",
        Purpose.SERVER: "kubernetes.io/kubelet-serving",
    }


def test_the_name_of_a_bootstrap_request_is_the_one_that_the_go_kubelet_gives():
    usages = build_usages(Purpose.CLIENT, KeyAlgorithm.ECDSA)
    name = build_bootstrap_name(PUBLIC_KEY, build_client_template("edge-1"), usages)
    assert name == "node-csr-B8tcSnR__s1-9GXZxdYCpZgURKtpTJ-1oxoqVoqBfEU"


@given(st.lists(st.text(max_size=4), min_size=2, max_size=4), st.data())
def test_no_two_requests_share_a_name_by_moving_letters(fields, data):
    name, *organizations = fields
    moved_name = data.draw(st.text(max_size=8))
    moved = data.draw(st.lists(st.text(max_size=4), max_size=4))
    one = Template(common_name=name, organizations=tuple(organizations))
    other = Template(common_name=moved_name, organizations=tuple(moved))
    same = build_bootstrap_name(b"k", one, ()) == build_bootstrap_name(b"k", other, ())
    assert same == (one == other)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("10.0.0.1", "10.0.0.1", id="IPv4"),
        pytest.param("2001:DB8:0::1", "2001:db8::1", id="IPv6 is shortened"),
        pytest.param("::ffff:1.2.3.4", "1.2.3.4", id="IPv4 in IPv6 is IPv4"),
        pytest.param("fe80::1%eth0", None, id="an address with a zone is none"),
        pytest.param("edge-1", None, id="a name is none"),
        pytest.param("", None, id="nothing is none"),
    ],
)
def test_canonical_ip(text, expected):
    assert canonical_ip(text) == expected
