"""Authenticated encryption for what must not be on disk in plain text: AES-256-GCM of `cryptography`.

A sealed value is a nonce, the encrypted bytes and a tag. It opens only with the key that sealed it and under the
identity it was sealed for, so that the secret of one object cannot be passed off as that of another. The only module
of the agent that imports `cryptography`: it is imported when `--klet-offline` is on.
"""

import secrets
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from klet.offline.errors import SealBroken

NONCE_SIZE: Final = 12
TAG_SIZE: Final = 16


class AesGcmSealer:
    """Seals and opens with one key. A nonce is drawn for each value, and never used twice in practice."""

    def __init__(self, *, cipher: AESGCM) -> None:
        self._cipher = cipher

    def seal(self, data: bytes, *, owner: bytes) -> bytes:
        nonce = secrets.token_bytes(NONCE_SIZE)
        return nonce + self._cipher.encrypt(nonce, data, owner)

    def open(self, sealed: bytes, *, owner: bytes) -> bytes:
        """Return what was sealed for that owner; raises SealBroken."""
        if len(sealed) < NONCE_SIZE + TAG_SIZE:
            raise SealBroken("the sealed value is too short")
        try:
            return self._cipher.decrypt(sealed[:NONCE_SIZE], sealed[NONCE_SIZE:], owner)
        except InvalidTag as error:
            raise SealBroken("the sealed value does not open: it is damaged, or was sealed with another key") from error


def load_sealer(key: bytes) -> AesGcmSealer:
    """Build a sealer for a key of the node (`store.py`)."""
    return AesGcmSealer(cipher=AESGCM(key))
