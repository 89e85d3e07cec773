"""What a node may ask a cluster's authority for: upstream's rules of the two kubelet signers."""

from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import NameOID

from klet.certs.child.loading import Refused, parse
from klet.certs.messages import Purpose, RefusalReason, Template

_NODE_PREFIX: Final = "system:node:"
_NODES: Final = ("system:nodes",)


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
