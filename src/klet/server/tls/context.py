"""TLS contexts of the server: versions, cipher suites by their IANA names, and the request for client certificates."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.errors import KletError

_CIPHERS: Final[Mapping[str, str]] = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA": "ECDHE-ECDSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA": "ECDHE-RSA-DES-CBC3-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA": "ECDHE-RSA-RC4-SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA": "DES-CBC3-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_RC4_128_SHA": "RC4-SHA",
}
_DEFAULT_CIPHERS: Final = tuple(
    name for name in _CIPHERS if "_ECDHE_" in name and "CBC" not in name and "RC4" not in name
)
_TLS_13: Final = "VersionTLS13"


class TlsError(KletError):
    """TLS settings that this machine cannot serve."""


class TlsSettings(Struct, frozen=True, kw_only=True):
    """`tlsMinVersion`, `tlsCipherSuites`, and whether client certificates are asked for (`clientCAFile`)."""

    min_version: str = ""
    cipher_suites: tuple[str, ...] = ()
    asks_for_certificates: bool = False


def choose_ciphers(suites: tuple[str, ...]) -> str:
    """Return OpenSSL's names of the suites up to TLS 1.2. Those of 1.3 cannot be chosen, upstream neither."""
    named = [_CIPHERS[name] for name in suites or _DEFAULT_CIPHERS if name in _CIPHERS]
    return ":".join(dict.fromkeys(named))


def build_context(settings: TlsSettings, certificate_file: Path, key_file: Path, *, authorities: str) -> ssl.SSLContext:
    """Return the context to serve a pair with. Raises TlsError; `load_pair` has better messages for a wrong pair.

    A client may come without a certificate, but one that the authorities have not signed ends the handshake.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate_file, key_file, password="")
    except OSError as error:
        raise TlsError(f"cannot serve with {certificate_file} and {key_file}: {error.strerror or error}") from error
    apply_settings(context, settings)
    if settings.asks_for_certificates:
        context.verify_mode = ssl.CERT_OPTIONAL
        # As in Go, an authority in the file is trusted whether or not it has signed itself.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=authorities)
        except (ssl.SSLError, ValueError) as error:
            raise TlsError(f"authentication.x509.clientCAFile cannot be used: {error}") from error
    return context


def apply_settings(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Set versions and suites. Older versions than 1.2 are never spoken, whatever is configured."""
    is_13_only = settings.min_version == _TLS_13
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if is_13_only else ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # A resumed session knows only the leaf of the client's chain, and would outlive a change of the authorities.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    chosen = choose_ciphers(settings.cipher_suites)
    if is_13_only or not chosen:
        return
    try:
        context.set_ciphers(chosen)
    except ssl.SSLError as error:
        suites = ", ".join(settings.cipher_suites)
        raise TlsError(f"tlsCipherSuites: this machine's TLS library has none of {suites}; name others") from error
