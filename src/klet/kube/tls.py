"""TLS contexts from PEM text that may only exist in memory."""

import os
import ssl

from klet.kube.access import Authority, NoVerification, PemSource
from klet.kube.credentials import CredentialSet
from klet.kube.errors import CredentialError, KubeconfigError


def client_context(authority: Authority, shown: CredentialSet) -> ssl.SSLContext:
    """Return the context for one server and one set of credentials."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    match authority:
        case NoVerification():
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        case PemSource():
            _trust(context, authority)
        case _:
            context.load_default_certs()
    if shown.certificate:
        _load_pair(context, shown)
    return context


def _trust(context: ssl.SSLContext, authority: PemSource) -> None:
    source = "inline data" if authority.path is None else str(authority.path)
    try:
        context.load_verify_locations(cadata=authority.read().decode("ascii"))
    except (OSError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"certificate-authority: {source}: {error}") from error


def _load_pair(context: ssl.SSLContext, shown: CredentialSet) -> None:
    """Load a pair. OpenSSL reads pairs from files only: an anonymous one keeps the key off the disk."""
    descriptor = os.memfd_create("klet-client", os.MFD_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            # A file that holds both is there twice.
            file.write(shown.certificate if shown.key == shown.certificate else shown.certificate + b"\n" + shown.key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    except (ssl.SSLError, OSError) as error:
        raise CredentialError(f"client certificate and key cannot be used: {error}") from error
    finally:
        os.close(descriptor)
