"""PEM text: its blocks, nothing of what is in them."""

import re
from typing import Final

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_CERTIFICATE: Final = "CERTIFICATE"
_KEY: Final = "PRIVATE KEY"
_ENCRYPTED: Final = ("ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED")


def certificate_blocks(text: str) -> tuple[str, ...]:
    """The certificates of a text, in order, each ending with a newline. Everything else is left out."""
    return tuple(f"{match[0]}\n" for match in _BLOCK.finditer(text) if match[1] == _CERTIFICATE)


def key_block(text: str) -> str:
    """The first private key of a text, of whatever kind; empty if there is none."""
    return next((f"{match[0]}\n" for match in _BLOCK.finditer(text) if match[1].endswith(_KEY)), "")


def is_encrypted(key: str) -> bool:
    """Whether a key needs a password."""
    return any(mark in key for mark in _ENCRYPTED)
