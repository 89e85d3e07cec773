"""Reads the facts of a certificate."""

from cryptography import x509
from cryptography.x509.oid import NameOID, ObjectIdentifier

from klet.certs.child.issue import is_authority
from klet.certs.child.loading import belongs_to, key_algorithm, load_certificates, load_key
from klet.certs.messages import CertificateFacts, Describe


def describe(request: Describe) -> CertificateFacts:
    chain = load_certificates(request.certificate, where="certificate")
    leaf = chain[0]
    names = _alternative_names(leaf)
    return CertificateFacts(
        common_name=_last(leaf.subject, NameOID.COMMON_NAME),
        organizations=_values(leaf.subject, NameOID.ORGANIZATION_NAME),
        issuer=_last(leaf.issuer, NameOID.COMMON_NAME),
        not_before=leaf.not_valid_before_utc,
        not_after=leaf.not_valid_after_utc,
        chain_not_after=min(each.not_valid_after_utc for each in chain),
        dns_names=tuple(names.get_values_for_type(x509.DNSName)) if names else (),
        ips=tuple(str(ip) for ip in names.get_values_for_type(x509.IPAddress)) if names else (),
        is_authority=is_authority(leaf),
        key_algorithm=key_algorithm(leaf.public_key()),
        key_matches=belongs_to(load_key(request.key, where="key"), leaf) if request.key else None,
    )


def _alternative_names(certificate: x509.Certificate) -> x509.SubjectAlternativeName | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def _last(name: x509.Name, kind: ObjectIdentifier) -> str:
    """Return the last of several common names, as Go does."""
    return next(reversed(_values(name, kind)), "")


def _values(name: x509.Name, kind: ObjectIdentifier) -> tuple[str, ...]:
    return tuple(str(attribute.value) for attribute in name.get_attributes_for_oid(kind))
