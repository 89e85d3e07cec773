"""Authenticated encryption for what must not be on disk in plain text: AES-256-GCM of the OpenSSL behind Python.

A sealed value is a nonce, the encrypted bytes and a tag. It opens only with the key that sealed it and under the
identity it was sealed for, so that the secret of one object cannot be passed off as that of another.
"""

import ctypes
import secrets
from typing import Final, Self

from klet.host.openssl_library import Signatures, load_openssl
from klet.offline.errors import SealBroken

KEY_SIZE: Final = 32
NONCE_SIZE: Final = 12
TAG_SIZE: Final = 16

_POINTER: Final = ctypes.c_void_p
_NUMBER: Final = ctypes.POINTER(ctypes.c_int)
_GET_TAG: Final = 0x10
_SET_TAG: Final = 0x11
_INIT: Final = (ctypes.c_int, (_POINTER, _POINTER, _POINTER, ctypes.c_char_p, ctypes.c_char_p))
_UPDATE: Final = (ctypes.c_int, (_POINTER, _POINTER, _NUMBER, ctypes.c_char_p, ctypes.c_int))
_FINAL: Final = (ctypes.c_int, (_POINTER, _POINTER, _NUMBER))
_SIGNATURES: Final[Signatures] = {
    "EVP_CIPHER_CTX_new": (_POINTER, ()),
    "EVP_CIPHER_CTX_free": (None, (_POINTER,)),
    "EVP_CIPHER_CTX_ctrl": (ctypes.c_int, (_POINTER, ctypes.c_int, ctypes.c_int, _POINTER)),
    "EVP_aes_256_gcm": (_POINTER, ()),
    "EVP_EncryptInit_ex": _INIT,
    "EVP_EncryptUpdate": _UPDATE,
    "EVP_EncryptFinal_ex": _FINAL,
    "EVP_DecryptInit_ex": _INIT,
    "EVP_DecryptUpdate": _UPDATE,
    "EVP_DecryptFinal_ex": _FINAL,
    "ERR_clear_error": (None, ()),
}


class Sealer:
    """Seals and opens with one key. A nonce is drawn for each value, and never used twice in practice."""

    def __init__(self, *, library: ctypes.CDLL, key: bytes) -> None:
        self._library = library
        self._key = key

    def seal(self, data: bytes, *, owner: bytes) -> bytes:
        nonce = secrets.token_bytes(NONCE_SIZE)
        with _Cipher(self._library, "Encrypt", self._key, nonce) as cipher:
            cipher.authenticate(owner)
            hidden = cipher.update(data)
            is_done, rest = cipher.finish()
            assert is_done  # encryption has nothing to object to
            return nonce + hidden + rest + cipher.tag()

    def open(self, sealed: bytes, *, owner: bytes) -> bytes:
        """What was sealed for that owner; raises SealBroken."""
        if len(sealed) < NONCE_SIZE + TAG_SIZE:
            raise SealBroken("the sealed value is too short")
        nonce, hidden, tag = sealed[:NONCE_SIZE], sealed[NONCE_SIZE:-TAG_SIZE], sealed[-TAG_SIZE:]
        with _Cipher(self._library, "Decrypt", self._key, nonce) as cipher:
            cipher.authenticate(owner)
            data = cipher.update(hidden)
            cipher.expect_tag(tag)
            is_whole, rest = cipher.finish()
        if not is_whole:
            raise SealBroken("the sealed value does not open: it is damaged, or was sealed with another key")
        return data + rest


def load_sealer(key: bytes) -> Sealer:
    """Raises LibraryHidden where Python keeps its OpenSSL to itself."""
    return Sealer(library=load_openssl(_SIGNATURES), key=key)


class _Cipher:
    """One run of the cipher, freed at its end."""

    def __init__(self, library: ctypes.CDLL, direction: str, key: bytes, nonce: bytes) -> None:
        self._library = library
        self._init = getattr(library, f"EVP_{direction}Init_ex")
        self._update = getattr(library, f"EVP_{direction}Update")
        self._final = getattr(library, f"EVP_{direction}Final_ex")
        self._context = library.EVP_CIPHER_CTX_new()
        self._check(self._init(self._context, library.EVP_aes_256_gcm(), None, key, nonce))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._library.EVP_CIPHER_CTX_free(self._context)
        self._library.ERR_clear_error()

    def authenticate(self, owner: bytes) -> None:
        """Bind the value to something that is not sealed itself."""
        size = ctypes.c_int()
        self._check(self._update(self._context, None, ctypes.byref(size), owner, len(owner)))

    def update(self, data: bytes) -> bytes:
        out, size = ctypes.create_string_buffer(len(data) + TAG_SIZE), ctypes.c_int()
        self._check(self._update(self._context, out, ctypes.byref(size), data, len(data)))
        return out.raw[: size.value]

    def finish(self) -> tuple[bool, bytes]:
        """Whether all is in order, and what was left."""
        out, size = ctypes.create_string_buffer(TAG_SIZE), ctypes.c_int()
        is_in_order = self._final(self._context, out, ctypes.byref(size)) == 1
        return is_in_order, out.raw[: size.value] if is_in_order else b""

    def tag(self) -> bytes:
        out = ctypes.create_string_buffer(TAG_SIZE)
        self._check(self._library.EVP_CIPHER_CTX_ctrl(self._context, _GET_TAG, TAG_SIZE, out))
        return out.raw

    def expect_tag(self, tag: bytes) -> None:
        buffer = ctypes.create_string_buffer(tag, TAG_SIZE)
        self._check(self._library.EVP_CIPHER_CTX_ctrl(self._context, _SET_TAG, TAG_SIZE, buffer))

    def _check(self, result: int) -> None:
        if result != 1:
            raise SealBroken("OpenSSL refuses AES-256-GCM on this machine")
