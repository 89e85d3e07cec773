"""What a signing request has to contain: names, signer, usages, and the name of a bootstrap request."""

import base64
import hashlib
from collections.abc import Iterable
from typing import Final

from klet.api.node import NodeAddress
from klet.api.validation.formats import parse_ip
from klet.certs.messages import KeyAlgorithm, Purpose, Template

SIGNERS: Final = {
    Purpose.CLIENT: "kubernetes.io/kube-apiserver-client-kubelet",
    Purpose.SERVER: "kubernetes.io/kubelet-serving",
}

_NODES: Final = "system:nodes"
_AUTHENTICATION: Final = {Purpose.CLIENT: "client auth", Purpose.SERVER: "server auth"}
_HOST_NAME: Final = "Hostname"
_DNS_TYPES: Final = ("InternalDNS", "ExternalDNS")
_IP_TYPES: Final = ("InternalIP", "ExternalIP")


def build_client_template(node: str) -> Template:
    return Template(common_name=f"system:node:{node}", organizations=(_NODES,))


def build_serving_template(node: str, addresses: Iterable[NodeAddress], *, allow_dns_only: bool) -> Template | None:
    """Return the template for the addresses a node has; None while it has none that a certificate could name.

    `allow_dns_only` is the deprecated gate AllowDNSOnlyNodeCSR: without it there must be an IP address.
    """
    names: set[str] = set()
    ips: set[str] = set()
    for each in addresses:
        ip = canonical_ip(each.address)
        if ip is not None and each.type in (_HOST_NAME, *_IP_TYPES):
            ips.add(ip)
        elif each.address and each.type in (_HOST_NAME, *_DNS_TYPES):
            names.add(each.address)
    if not ips and not (allow_dns_only and names):
        return None
    return Template(
        common_name=f"system:node:{node}",
        organizations=(_NODES,),
        dns_names=tuple(sorted(names)),
        ips=tuple(sorted(ips)),
    )


def build_usages(purpose: Purpose, algorithm: KeyAlgorithm) -> tuple[str, ...]:
    """Return the usages to ask for. Only RSA keys encrypt the keys of a session."""
    encipherment = ("key encipherment",) if algorithm is KeyAlgorithm.RSA else ()
    return ("digital signature", _AUTHENTICATION[purpose], *encipherment)


def build_bootstrap_name(public_key: bytes, template: Template, usages: Iterable[str]) -> str:
    """Return the name of a node's first client request: with the same key it is the same after a restart."""
    fields = (public_key, *(text.encode() for text in (template.common_name, *template.organizations, *usages)))
    digest = hashlib.new("sha512_256", b"".join(_encode(field) + b"|" for field in fields))
    return f"node-csr-{_encode(digest.digest()).decode()}"


def canonical_ip(text: str) -> str | None:
    """Return an address as Go prints it; None for what is none."""
    ip = parse_ip(text)
    if ip is None:
        return None
    mapped = ip.ipv4_mapped if ip.version == 6 else None
    return str(mapped or ip)


def _encode(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
