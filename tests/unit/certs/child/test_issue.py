from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from klet.certs.child.issue import (
    make_authority,
    make_self_signed,
    make_signing_request,
    read_node_request,
    sign_leaf,
    sign_request,
)
from klet.certs.child.loading import Refused, describe, public_bytes
from klet.certs.messages import (
    Describe,
    KeyAlgorithm,
    MakeAuthority,
    MakeSelfSigned,
    MakeSigningRequest,
    Purpose,
    RefusalReason,
    SignLeaf,
    SignRequest,
    Template,
)

NOW = datetime(2030, 1, 1, 12, 0, 0, 500000, tzinfo=UTC)
DAY = timedelta(days=1)
NEW_YEAR = datetime(2030, 1, 1, tzinfo=UTC)
NODE = "system:node:edge-1"
NODES = ("system:nodes",)


def usage(certificate):
    value = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    return {
        name for name in ("digital_signature", "key_encipherment", "key_cert_sign", "crl_sign") if getattr(value, name)
    }


def names(signed, kind):
    return signed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(kind)


@pytest.fixture(scope="module")
def self_signed():
    return make_self_signed(MakeSelfSigned(host="edge-1", dns_names=("edge-1", "b"), ips=("10.0.0.2",), now=NOW))


@pytest.fixture(scope="module")
def self_signed_chain(self_signed):
    return x509.load_pem_x509_certificates(self_signed.certificate.encode())


@pytest.fixture
def leaf_request(authority_files):
    def build(**changes):
        fields = {
            "authority_certificate_file": str(authority_files[0]),
            "authority_key_file": str(authority_files[1]),
            "template": Template(common_name="c", organizations=("a", "b")),
            "purpose": Purpose.CLIENT,
            "lifetime": DAY,
            "now": NOW,
        }
        return SignLeaf(**fields | changes)

    return build


class TestSelfSigned:
    def test_the_leaf_comes_first_and_then_its_authority(self, self_signed_chain):
        leaf, authority = self_signed_chain
        leaf.verify_directly_issued_by(authority)
        authority.verify_directly_issued_by(authority)
        assert leaf.serial_number != authority.serial_number

    def test_names(self, self_signed_chain):
        second = int(NOW.timestamp())
        subjects = [each.subject.rfc4514_string() for each in self_signed_chain]
        assert subjects == [f"CN=edge-1@{second}", f"CN=edge-1-ca@{second}"]
        assert names(self_signed_chain[0], x509.DNSName) == ["edge-1", "b"]
        assert [str(ip) for ip in names(self_signed_chain[0], x509.IPAddress)] == ["10.0.0.2"]

    def test_a_year_from_an_hour_ago(self, self_signed_chain):
        start = NOW.replace(microsecond=0) - timedelta(hours=1)
        for each in self_signed_chain:
            assert (each.not_valid_before_utc, each.not_valid_after_utc) == (start, start + 365 * DAY)

    def test_rsa_2048_and_its_own_key(self, self_signed, self_signed_chain):
        assert self_signed.key.startswith("-----BEGIN RSA PRIVATE KEY-----\n")
        key = load_pem_private_key(self_signed.key.encode(), None)
        assert key.key_size == 2048
        assert public_bytes(key.public_key()) == public_bytes(self_signed_chain[0].public_key())
        assert public_bytes(key.public_key()) != public_bytes(self_signed_chain[1].public_key())

    def test_usages(self, self_signed_chain):
        leaf, authority = self_signed_chain
        assert usage(leaf) == {"digital_signature", "key_encipherment"}
        assert usage(authority) == {"digital_signature", "key_encipherment", "key_cert_sign"}
        extended = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(extended) == [ExtendedKeyUsageOID.SERVER_AUTH]
        constraints = [
            each.extensions.get_extension_for_class(x509.BasicConstraints).value.ca for each in self_signed_chain
        ]
        assert constraints == [False, True]


class TestSigningRequest:
    def test_a_new_key_is_p256(self):
        answer = make_signing_request(MakeSigningRequest(template=Template(common_name="c")))
        request = x509.load_pem_x509_csr(answer.request.encode())
        assert request.is_signature_valid
        assert isinstance(request.public_key(), EllipticCurvePublicKey)
        assert isinstance(request.public_key().curve, SECP256R1)
        assert answer.key.startswith("-----BEGIN EC PRIVATE KEY-----\n")
        assert answer.key_algorithm is KeyAlgorithm.ECDSA
        assert answer.public_key == public_bytes(request.public_key())
        assert list(request.extensions) == []

    def test_every_request_has_a_key_of_its_own(self):
        request = MakeSigningRequest(template=Template(common_name="c"))
        assert make_signing_request(request).key != make_signing_request(request).key

    def test_it_holds_what_the_template_says(self):
        template = Template(
            common_name="system:node:edge-1", organizations=("system:nodes",), dns_names=("edge-1",), ips=("::1",)
        )
        answer = make_signing_request(MakeSigningRequest(template=template))
        request = x509.load_pem_x509_csr(answer.request.encode())
        assert [(each.oid, each.value) for each in request.subject] == [
            (NameOID.ORGANIZATION_NAME, "system:nodes"),
            (NameOID.COMMON_NAME, "system:node:edge-1"),
        ]
        assert names(request, x509.DNSName) == ["edge-1"]
        assert [str(ip) for ip in names(request, x509.IPAddress)] == ["::1"]

    def test_a_given_key_is_used(self, other_key):
        answer = make_signing_request(MakeSigningRequest(template=Template(common_name="c"), key=other_key))
        assert answer.key == other_key
        assert x509.load_pem_x509_csr(answer.request.encode()).is_signature_valid

    def test_a_given_rsa_key_is_reported(self, self_signed):
        answer = make_signing_request(MakeSigningRequest(template=Template(common_name="c"), key=self_signed.key))
        assert answer.key_algorithm is KeyAlgorithm.RSA

    @pytest.mark.parametrize(
        ("template", "key", "reason", "message"),
        [
            pytest.param(
                Template(common_name=""), "", RefusalReason.BAD_VALUE, "common name: must not be empty", id="no name"
            ),
            pytest.param(
                Template(common_name="c", dns_names=("bücher",)),
                "",
                RefusalReason.BAD_VALUE,
                "DNS name 'bücher': must be ASCII",
                id="a DNS name that is not encoded",
            ),
            pytest.param(
                Template(common_name="c", ips=("10.0.0",)),
                "",
                RefusalReason.BAD_VALUE,
                "IP address '10.0.0': must be an IPv4 or IPv6 address",
                id="half an address",
            ),
            pytest.param(
                Template(common_name="c"), "x", RefusalReason.DAMAGED, "key: holds no PEM private key", id="no key"
            ),
            pytest.param(
                Template(common_name="c"),
                "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
                RefusalReason.DAMAGED,
                "key: the private key is damaged",
                id="a damaged key",
            ),
            pytest.param(
                Template(common_name="c"),
                "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
                RefusalReason.BAD_VALUE,
                "key: the key is encrypted; give one without a password",
                id="an encrypted key",
            ),
        ],
    )
    def test_what_breaks_a_rule_is_refused(self, template, key, reason, message):
        with pytest.raises(Refused) as caught:
            make_signing_request(MakeSigningRequest(template=template, key=key))
        assert caught.value.reason is reason
        assert str(caught.value).startswith(message)


class TestAuthority:
    def test_it_is_one(self):
        pair = make_authority(MakeAuthority(common_name="klet-ca", lifetime=3650 * DAY, now=NOW))
        facts = describe(Describe(certificate=pair.certificate, key=pair.key))
        assert (facts.common_name, facts.issuer, facts.is_authority, facts.key_matches) == (
            "klet-ca",
            "klet-ca",
            True,
            True,
        )
        second = NOW.replace(microsecond=0)
        assert (facts.not_before, facts.not_after) == (second - timedelta(minutes=5), second + 3650 * DAY)

    def test_it_must_last_a_while(self):
        with pytest.raises(Refused, match="must be more than nothing"):
            make_authority(MakeAuthority(common_name="klet-ca", lifetime=timedelta(0), now=NOW))


class TestLeaf:
    @pytest.mark.parametrize(
        ("purpose", "expected"),
        [(Purpose.SERVER, ExtendedKeyUsageOID.SERVER_AUTH), (Purpose.CLIENT, ExtendedKeyUsageOID.CLIENT_AUTH)],
    )
    def test_purposes(self, leaf_request, authority_files, purpose, expected):
        pair = sign_leaf(leaf_request(purpose=purpose))
        leaf = x509.load_pem_x509_certificate(pair.certificate.encode())
        leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(authority_files[0].read_bytes()))
        assert list(leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [expected]
        assert usage(leaf) == {"digital_signature"}

    def test_facts(self, leaf_request):
        template = Template(
            common_name="c", organizations=("a", "b"), dns_names=("localhost",), ips=("127.0.0.1", "::1")
        )
        pair = sign_leaf(leaf_request(template=template))
        facts = describe(Describe(certificate=pair.certificate, key=pair.key))
        assert (facts.common_name, facts.dns_names, facts.ips) == ("c", ("localhost",), ("127.0.0.1", "::1"))
        assert sorted(facts.organizations) == ["a", "b"]
        assert (facts.issuer, facts.is_authority, facts.key_matches) == ("test-ca", False, True)
        second = NOW.replace(microsecond=0)
        assert (facts.not_before, facts.not_after) == (second - timedelta(minutes=5), second + DAY)

    def test_it_ends_with_its_authority(self, leaf_request, authority_files):
        end = describe(Describe(certificate=authority_files[0].read_text())).not_after
        pair = sign_leaf(leaf_request(now=end - DAY, lifetime=10 * DAY))
        assert describe(Describe(certificate=pair.certificate)).not_after == end

    def test_an_authority_of_upstreams_kind_signs_too(self, leaf_request, self_signed, tmp_path):
        """RSA, and without the identifier that ours has."""
        key = load_pem_private_key(self_signed.key.encode(), None)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
        builder = x509.CertificateBuilder(name, name, key.public_key(), 7, NOW - DAY, NOW + DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        certificate = builder.sign(key, SHA256())
        (tmp_path / "ca.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
        (tmp_path / "ca.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        pair = sign_leaf(
            leaf_request(
                authority_certificate_file=str(tmp_path / "ca.crt"), authority_key_file=str(tmp_path / "ca.key")
            )
        )
        x509.load_pem_x509_certificate(pair.certificate.encode()).verify_directly_issued_by(certificate)

    def test_files_that_are_not_there_are_named(self, leaf_request, tmp_path):
        with pytest.raises(Refused, match=f"cannot read {tmp_path}/no.key: No such file or directory") as caught:
            sign_leaf(leaf_request(authority_key_file=str(tmp_path / "no.key")))
        assert caught.value.reason is RefusalReason.UNREADABLE_FILE

    def test_a_key_of_another_authority(self, leaf_request, other_key, tmp_path):
        (tmp_path / "other.key").write_text(other_key)
        with pytest.raises(Refused, match=r"other.key: the key does not belong to the certificate in .*ca.crt"):
            sign_leaf(leaf_request(authority_key_file=str(tmp_path / "other.key")))

    def test_a_leaf_is_no_authority(self, leaf_request, pair, tmp_path):
        (tmp_path / "leaf.pem").write_text(pair.certificate + pair.key)
        file = str(tmp_path / "leaf.pem")
        with pytest.raises(Refused, match=r"leaf.pem: the certificate is not an authority"):
            sign_leaf(leaf_request(authority_certificate_file=file, authority_key_file=file))

    def test_an_authority_that_has_ended(self, leaf_request):
        with pytest.raises(Refused, match=r"ca.crt: the authority ended at 20\d\d-") as caught:
            sign_leaf(leaf_request(now=NOW + 4000 * DAY))
        assert caught.value.reason is RefusalReason.EXPIRED

    def test_a_life_of_nothing(self, leaf_request):
        with pytest.raises(Refused, match="must be more than nothing"):
            sign_leaf(leaf_request(lifetime=-DAY))

    def test_no_certificate_in_the_file(self, leaf_request, authority_files):
        with pytest.raises(Refused, match=r"ca.key: holds no PEM certificate"):
            sign_leaf(leaf_request(authority_certificate_file=str(authority_files[1])))


LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)


@pytest.mark.filterwarnings("ignore:Attribute's length must be")
@settings(max_examples=30)
@given(
    name=st.text(st.characters(codec="utf-8", exclude_categories=("C",)), min_size=1, max_size=80),
    organizations=st.lists(LABEL, max_size=3, unique=True),
    dns_names=st.lists(LABEL, max_size=3, unique=True),
    ips=st.lists(st.ip_addresses().map(str), max_size=3, unique=True),
)
def test_what_is_asked_for_is_what_the_certificate_says(new_pair, name, organizations, dns_names, ips):
    pair = new_pair(name, organizations=tuple(organizations), dns_names=tuple(dns_names), ips=tuple(ips))
    facts = describe(Describe(certificate=pair.certificate, key=pair.key))
    assert (facts.common_name, facts.dns_names, facts.ips) == (name, tuple(dns_names), tuple(ips))
    assert sorted(facts.organizations) == sorted(organizations)
    assert facts.key_matches


def asked(**fields):
    return make_signing_request(MakeSigningRequest(template=Template(**fields)))


def test_a_request_is_read_as_it_was_made():
    template = Template(common_name=NODE, organizations=NODES, dns_names=("edge-1",), ips=("10.0.0.1", "2001:db8::1"))
    made = make_signing_request(MakeSigningRequest(template=template))
    read, key = read_node_request(made.request, Purpose.SERVER)
    assert read == template
    assert public_bytes(key) == made.public_key


@pytest.mark.parametrize(
    ("fields", "purpose", "message"),
    [
        pytest.param(
            {"common_name": NODE, "organizations": ("system:masters",)},
            Purpose.CLIENT,
            "organization must be exactly system:nodes",
            id="another group",
        ),
        pytest.param(
            {"common_name": NODE, "organizations": ("system:masters", *NODES)},
            Purpose.CLIENT,
            "organization must be exactly system:nodes",
            id="another group besides",
        ),
        pytest.param(
            {"common_name": "admin", "organizations": NODES},
            Purpose.CLIENT,
            "common name must begin with system:node:",
            id="somebody who is no node",
        ),
        pytest.param(
            {"common_name": NODE, "organizations": NODES, "dns_names": ("api",)},
            Purpose.CLIENT,
            "a client certificate has no DNS names and addresses",
            id="a client with the name of a server",
        ),
        pytest.param(
            {"common_name": NODE, "organizations": NODES},
            Purpose.SERVER,
            "at least one DNS name or IP address is required",
            id="a server without a name",
        ),
    ],
)
def test_what_no_node_may_have(fields, purpose, message):
    with pytest.raises(Refused, match=message):
        read_node_request(asked(**fields).request, purpose)


def test_a_damaged_request_is_refused():
    with pytest.raises(Refused, match="the signing request is damaged") as caught:
        read_node_request("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n", Purpose.CLIENT)
    assert caught.value.reason is RefusalReason.DAMAGED


@pytest.mark.parametrize(
    ("lifetime", "expected"),
    [
        pytest.param(timedelta(hours=1), timedelta(hours=1), id="a short lifetime is given whole"),
        pytest.param(timedelta(days=365), timedelta(days=365, minutes=-5), id="a long one ends five minutes earlier"),
        pytest.param(timedelta(days=36500), timedelta(days=3650), id="never beyond the authority"),
    ],
)
def test_how_long_a_signed_certificate_lasts(authority_files, lifetime, expected):
    made = asked(common_name=NODE, organizations=NODES)
    signed = sign_request(
        SignRequest(
            authority_certificate_file=str(authority_files[0]),
            authority_key_file=str(authority_files[1]),
            request=made.request,
            purpose=Purpose.CLIENT,
            lifetime=lifetime,
            now=NEW_YEAR,
        )
    )
    certificate = x509.load_pem_x509_certificate(signed.certificate.encode())
    assert certificate.not_valid_before_utc == NEW_YEAR - timedelta(minutes=5)
    assert certificate.not_valid_after_utc == NEW_YEAR + expected
    assert public_bytes(certificate.public_key()) == made.public_key
