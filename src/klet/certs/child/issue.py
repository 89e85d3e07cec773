"""Makes keys, signing requests and certificates.

The self-signed pair is what upstream's GenerateSelfSignedCertKey makes; keys have the PEM types upstream writes. What a
node may ask a cluster's authority for follows upstream's rules of the two kubelet signers.
"""

from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as generate_ec_key
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa_key
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier
from msgspec import Struct

from klet.certs.child.loading import (
    Refused,
    SigningKey,
    belongs_to,
    is_authority,
    key_algorithm,
    load_certificates,
    load_signing_key,
    parse,
    public_bytes,
    read_file,
)
from klet.certs.messages import (
    KeyAndRequest,
    MakeAuthority,
    MakeSelfSigned,
    MakeSigningRequest,
    Pair,
    Purpose,
    RefusalReason,
    Signed,
    SignLeaf,
    SignRequest,
    Template,
)

SELF_SIGNED_LIFETIME: Final = timedelta(days=365)
# The clocks of two machines differ a little: a certificate begins before it is made.
SELF_SIGNED_HEAD_START: Final = timedelta(hours=1)
HEAD_START: Final = timedelta(minutes=5)
_LONG_LIFETIME: Final = timedelta(hours=8)

_RSA_BITS: Final = 2048
_RSA_EXPONENT: Final = 65537
_EXTENDED_USAGES: Final = {
    Purpose.SERVER: ExtendedKeyUsageOID.SERVER_AUTH,
    Purpose.CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH,
}
_NODE_PREFIX: Final = "system:node:"
_NODES: Final = ("system:nodes",)


class _Issuer(Struct, frozen=True, kw_only=True):
    """Who signs."""

    name: x509.Name
    key: SigningKey
    key_identifier: x509.SubjectKeyIdentifier


def make_self_signed(request: MakeSelfSigned) -> Pair:
    """Return a serving pair; the authority's certificate follows the leaf, its key is forgotten."""
    start = request.now - SELF_SIGNED_HEAD_START
    end = start + SELF_SIGNED_LIFETIME
    second = int(request.now.timestamp())
    authority_key = generate_rsa_key(_RSA_EXPONENT, _RSA_BITS)
    authority = _authority(f"{request.host}-ca@{second}", authority_key, start=start, end=end)
    key = generate_rsa_key(_RSA_EXPONENT, _RSA_BITS)
    template = Template(common_name=f"{request.host}@{second}", dns_names=request.dns_names, ips=request.ips)
    issuer = _issuer(authority, authority_key)
    leaf = _leaf(template, key.public_key(), issuer, purpose=Purpose.SERVER, start=start, end=end)
    return Pair(certificate=_pem(leaf) + _pem(authority), key=_key_pem(key))


def make_signing_request(request: MakeSigningRequest) -> KeyAndRequest:
    key: SigningKey = load_signing_key(request.key, where="key") if request.key else generate_ec_key(SECP256R1())
    builder = x509.CertificateSigningRequestBuilder(subject_name=_subject(request.template))
    names = _alternative_names(request.template)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return KeyAndRequest(
        request=builder.sign(key, SHA256()).public_bytes(Encoding.PEM).decode(),
        key=_key_pem(key),
        key_algorithm=key_algorithm(key.public_key()),
        public_key=public_bytes(key.public_key()),
    )


def make_authority(request: MakeAuthority) -> Pair:
    _check_lifetime(request.lifetime)
    key = generate_ec_key(SECP256R1())
    start, end = request.now - HEAD_START, request.now + request.lifetime
    return Pair(certificate=_pem(_authority(request.common_name, key, start=start, end=end)), key=_key_pem(key))


def sign_leaf(request: SignLeaf) -> Pair:
    """Return a pair of the authority in the files. It never outlives the authority."""
    _check_lifetime(request.lifetime)
    authority, authority_key = _load_authority(request)
    end = min(request.now + request.lifetime, authority.not_valid_after_utc)
    key = generate_ec_key(SECP256R1())
    leaf = _leaf(
        request.template,
        key.public_key(),
        _issuer(authority, authority_key),
        purpose=request.purpose,
        start=request.now - HEAD_START,
        end=end,
    )
    return Pair(certificate=_pem(leaf), key=_key_pem(key))


def sign_request(request: SignRequest) -> Signed:
    """Return the certificate that a node asks for. Long ones end as much earlier as they begin before they are made."""
    _check_lifetime(request.lifetime)
    authority, authority_key = _load_authority(request)
    template, public = read_node_request(request.request, request.purpose)
    lifetime = request.lifetime if request.lifetime < _LONG_LIFETIME else request.lifetime - HEAD_START
    leaf = _leaf(
        template,
        public,
        _issuer(authority, authority_key),
        purpose=request.purpose,
        start=request.now - HEAD_START,
        end=min(request.now + lifetime, authority.not_valid_after_utc),
    )
    return Signed(certificate=_pem(leaf))


def _load_authority(request: SignLeaf | SignRequest) -> tuple[x509.Certificate, SigningKey]:
    path = request.authority_certificate_file
    certificate = load_certificates(read_file(path), where=path)[0]
    key = load_signing_key(read_file(request.authority_key_file), where=request.authority_key_file)
    if not belongs_to(key, certificate):
        rule = f"{request.authority_key_file}: the key does not belong to the certificate in {path}"
        raise Refused(RefusalReason.MISMATCH, rule)
    if not is_authority(certificate):
        raise Refused(RefusalReason.BAD_VALUE, f"{path}: the certificate is not an authority")
    if certificate.not_valid_after_utc <= request.now:
        rule = f"{path}: the authority ended at {certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
        raise Refused(RefusalReason.EXPIRED, rule)
    return certificate, key


def _authority(common_name: str, key: SigningKey, *, start: datetime, end: datetime) -> x509.Certificate:
    public = key.public_key()
    name = _subject(Template(common_name=common_name))
    builder = _builder(name, name, public, start=start, end=end)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(_usage(is_rsa=isinstance(public, RSAPublicKey), signs=True), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    return builder.sign(key, SHA256())


def _leaf(
    template: Template,
    key: CertificatePublicKeyTypes,
    issuer: _Issuer,
    *,
    purpose: Purpose,
    start: datetime,
    end: datetime,
) -> x509.Certificate:
    identifier = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer.key_identifier)
    builder = _builder(_subject(template), issuer.name, key, start=start, end=end)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(is_rsa=isinstance(key, RSAPublicKey), signs=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([_EXTENDED_USAGES[purpose]]), critical=False)
    builder = builder.add_extension(identifier, critical=False)
    names = _alternative_names(template)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer.key, SHA256())


def _builder(
    name: x509.Name, issuer: x509.Name, key: CertificatePublicKeyTypes, *, start: datetime, end: datetime
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=name,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=start,
        not_valid_after=end,
    )


def _issuer(certificate: x509.Certificate, key: SigningKey) -> _Issuer:
    try:
        identifier = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        identifier = x509.SubjectKeyIdentifier.from_public_key(certificate.public_key())
    return _Issuer(name=certificate.subject, key=key, key_identifier=identifier)


def _usage(*, is_rsa: bool, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=is_rsa,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _subject(template: Template) -> x509.Name:
    if not template.common_name:
        raise Refused(RefusalReason.BAD_VALUE, "common name: must not be empty")
    parts = []
    if template.organizations:
        # Several organizations share one part of the name, as Go writes them.
        organizations = [_attribute(NameOID.ORGANIZATION_NAME, name) for name in dict.fromkeys(template.organizations)]
        parts.append(x509.RelativeDistinguishedName(organizations))
    parts.append(x509.RelativeDistinguishedName([_attribute(NameOID.COMMON_NAME, template.common_name)]))
    return x509.Name(parts)


def _attribute(kind: ObjectIdentifier, value: str) -> "x509.NameAttribute[str]":
    # Not validated: X.509 ends a common name at 64 characters, but a node's name alone may have 253 and an identity is
    # never cut. Go and OpenSSL read longer ones.
    return x509.NameAttribute(kind, value, _validate=False)


def _alternative_names(template: Template) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for name in template.dns_names:
        try:
            names.append(x509.DNSName(name))
        except ValueError as error:
            raise Refused(RefusalReason.BAD_VALUE, f"DNS name {name!r}: must be ASCII") from error
    for ip in template.ips:
        try:
            names.append(x509.IPAddress(ip_address(ip)))
        except ValueError as error:
            raise Refused(RefusalReason.BAD_VALUE, f"IP address {ip!r}: must be an IPv4 or IPv6 address") from error
    return names


def _check_lifetime(lifetime: timedelta) -> None:
    if lifetime <= timedelta(0):
        raise Refused(RefusalReason.BAD_VALUE, f"lifetime {lifetime}: must be more than nothing")


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def _key_pem(key: SigningKey) -> str:
    """Return `RSA PRIVATE KEY` or `EC PRIVATE KEY`."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()


def read_node_request(text: str, purpose: Purpose) -> tuple[Template, CertificatePublicKeyTypes]:
    """Return whom a signing request names and its key. Raises Refused for one that no node may make."""
    request = parse("request", "signing request", lambda: x509.load_pem_x509_csr(text.encode()))
    if not request.is_signature_valid:
        raise Refused(RefusalReason.DAMAGED, "request: the signature is not that of its key")
    template = _template(request)
    if template.organizations != _NODES:
        raise Refused(RefusalReason.BAD_VALUE, "request: organization must be exactly system:nodes")
    if not template.common_name.startswith(_NODE_PREFIX):
        raise Refused(RefusalReason.BAD_VALUE, f"request: common name must begin with {_NODE_PREFIX}")
    has_names = bool(template.dns_names or template.ips)
    if purpose is Purpose.CLIENT and has_names:
        raise Refused(RefusalReason.BAD_VALUE, "request: a client certificate has no DNS names and addresses")
    if purpose is Purpose.SERVER and not has_names:
        raise Refused(RefusalReason.BAD_VALUE, "request: at least one DNS name or IP address is required")
    return template, request.public_key()


def _template(request: x509.CertificateSigningRequest) -> Template:
    try:
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    if len(names) != len(kept := [each for each in names if isinstance(each, x509.DNSName | x509.IPAddress)]):
        raise Refused(RefusalReason.BAD_VALUE, "request: only DNS names and IP addresses may be named")
    return Template(
        common_name=next((str(each.value) for each in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)), ""),
        organizations=tuple(
            str(each.value) for each in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        ),
        dns_names=tuple(each.value for each in kept if isinstance(each, x509.DNSName)),
        ips=tuple(str(each.value) for each in kept if isinstance(each, x509.IPAddress)),
    )
