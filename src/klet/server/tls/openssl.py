"""What OpenSSL can do and Python's `ssl` does not offer: judging client certificates after the handshake.

Python can only ask for a client certificate by checking it during the handshake, where a bad one ends the connection.
The kubelet answers 401 instead, and lets a good token count beside a bad certificate.
"""

import ctypes
import logging
import ssl
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Self

from klet.host.openssl_library import LibraryHidden, Signatures, load_openssl

logger = logging.getLogger(__name__)

_VERIFY_CALLBACK: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_CLIENT_PURPOSE: Final = 1
_POINTER: Final = ctypes.c_void_p
_SIGNATURES: Final[Signatures] = {
    "SSL_CTX_get_verify_mode": (ctypes.c_int, (_POINTER,)),
    "SSL_CTX_set_cert_verify_callback": (None, (_POINTER, _VERIFY_CALLBACK, _POINTER)),
    "d2i_X509": (_POINTER, (_POINTER, _POINTER, ctypes.c_long)),
    "X509_free": (None, (_POINTER,)),
    "X509_STORE_new": (_POINTER, ()),
    "X509_STORE_free": (None, (_POINTER,)),
    "X509_STORE_add_cert": (ctypes.c_int, (_POINTER, _POINTER)),
    "X509_STORE_CTX_new": (_POINTER, ()),
    "X509_STORE_CTX_free": (None, (_POINTER,)),
    "X509_STORE_CTX_init": (ctypes.c_int, (_POINTER, _POINTER, _POINTER, _POINTER)),
    "X509_STORE_CTX_set_purpose": (ctypes.c_int, (_POINTER, ctypes.c_int)),
    "X509_STORE_CTX_set_time": (None, (_POINTER, ctypes.c_ulong, ctypes.c_long)),
    "X509_STORE_CTX_get_error": (ctypes.c_int, (_POINTER,)),
    "X509_verify_cert": (ctypes.c_int, (_POINTER,)),
    "X509_verify_cert_error_string": (ctypes.c_char_p, (ctypes.c_long,)),
    "OPENSSL_sk_new_null": (_POINTER, ()),
    "OPENSSL_sk_push": (ctypes.c_int, (_POINTER, _POINTER)),
    "OPENSSL_sk_free": (None, (_POINTER,)),
    "ERR_clear_error": (None, ()),
}


class OpenSsl:
    """The library that Python itself uses, loaded once."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        # OpenSSL keeps the address of the callback, not the object: this reference keeps it alive.
        self._accept = _VERIFY_CALLBACK(_accept_any)

    def accept_any_client(self, context: ssl.SSLContext) -> None:
        """Let every client certificate through the handshake; it must be judged afterwards (`judge`)."""
        self._library.SSL_CTX_set_cert_verify_callback(_address(context), self._accept, None)

    def judge(self, chain: Sequence[bytes], authorities: Sequence[bytes], *, now: datetime) -> str | None:
        """Why a client's certificate, given with its intermediates in DER, is not to be trusted; None if it is."""
        with _Judgement(self._library) as judgement:
            return judgement.verify(chain, authorities, now)

    def is_usable(self) -> bool:
        """Whether the library is the one behind Python's contexts, and they are laid out as expected."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for mode, flags in ((ssl.CERT_NONE, 0), (ssl.CERT_OPTIONAL, 1), (ssl.CERT_REQUIRED, 3)):
            context.verify_mode = mode
            if self._library.SSL_CTX_get_verify_mode(_address(context)) != flags:
                return False
        return True


class _Judgement:
    """The objects of one verification, freed at its end."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._certificates: list[int] = []
        self._store = library.X509_STORE_new()
        self._context = library.X509_STORE_CTX_new()
        self._intermediates = library.OPENSSL_sk_new_null()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        library = self._library
        library.X509_STORE_CTX_free(self._context)
        library.OPENSSL_sk_free(self._intermediates)
        library.X509_STORE_free(self._store)
        for certificate in self._certificates:
            library.X509_free(certificate)
        library.ERR_clear_error()

    def verify(self, chain: Sequence[bytes], authorities: Sequence[bytes], now: datetime) -> str | None:
        library = self._library
        for authority in authorities:
            if (read := self._read(authority)) is not None:
                library.X509_STORE_add_cert(self._store, read)
        leaf, *intermediates = (self._read(each) for each in chain)
        if leaf is None or None in intermediates:
            return "the certificate cannot be read"
        for each in intermediates:
            library.OPENSSL_sk_push(self._intermediates, each)
        if library.X509_STORE_CTX_init(self._context, self._store, leaf, self._intermediates) != 1:
            return "the certificate cannot be checked"
        library.X509_STORE_CTX_set_purpose(self._context, _CLIENT_PURPOSE)
        library.X509_STORE_CTX_set_time(self._context, 0, int(now.timestamp()))
        if library.X509_verify_cert(self._context) == 1:
            return None
        code = library.X509_STORE_CTX_get_error(self._context)
        text: bytes = library.X509_verify_cert_error_string(code)
        return text.decode()

    def _read(self, der: bytes) -> int | None:
        buffer = ctypes.create_string_buffer(der, len(der))
        place = _POINTER(ctypes.addressof(buffer))
        certificate: int | None = self._library.d2i_X509(None, ctypes.addressof(place), len(der))
        if certificate is not None:
            self._certificates.append(certificate)
        return certificate


def find_openssl() -> OpenSsl | None:
    """The library behind Python's `ssl`; None where Python has it built in and hides its functions."""
    try:
        library = load_openssl(_SIGNATURES)
    except LibraryHidden as error:
        logger.info("Client certificates are checked during the handshake", extra={"error": str(error)})
        return None
    found = OpenSsl(library)
    return found if found.is_usable() else None


def _accept_any(_store_context: int | None, _argument: int | None) -> int:
    return 1


def _address(context: ssl.SSLContext) -> int:
    """Where OpenSSL's context lies: the first field of Python's object, behind its header."""
    address = _POINTER.from_address(id(context) + object.__basicsize__).value
    assert address is not None
    return address
