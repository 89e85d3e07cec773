"""Between which times a certificate is valid, read from its DER form. Pure.

Only for a metric: whether a certificate is good is for OpenSSL and the server to say. The agent does not import
`cryptography` (9 MiB), and the standard library shows the times of certificates of a connection only.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from klet.model.pem_blocks import read_blocks

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_FORMATS: Final = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
"""UTCTime and GeneralizedTime, as certificates have them."""
_LONG: Final = 0x80
_LONGEST: Final = 4


class ValidityTimes(Struct, frozen=True):
    """When a certificate begins to be valid, and when it ends."""

    begins_at: datetime
    ends_at: datetime


def read_validity(pem: str) -> ValidityTimes | None:
    """Return the times of the first certificate; None for what is none."""
    first = next(iter(read_blocks(pem)), b"")
    try:
        body = _inside(_inside(first))
        elements = [each for each in _elements(body) if each[0] != _VERSION]
        # serialNumber, signature, issuer, validity
        tag, validity = elements[3]
        begins, ends = (_read_time(*each) for each in _elements(validity))
    except (ValueError, IndexError):
        return None
    return ValidityTimes(begins, ends) if tag == _SEQUENCE else None


def _inside(data: bytes) -> bytes:
    """Return the content of the sequence that data begins with."""
    tag, content = next(_elements(data), (0, b""))
    if tag != _SEQUENCE:
        raise ValueError("no sequence")
    return content


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the tags and contents of consecutive elements. Raises ValueError or IndexError."""
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & _LONG:
            digits = length & ~_LONG
            if not 0 < digits <= _LONGEST:
                raise ValueError("no definite length")
            length = int.from_bytes(data[at : at + digits])
            at += digits
        if at + length > len(data):
            raise ValueError("cut off")
        yield tag, data[at : at + length]
        at += length


def _read_time(tag: int, content: bytes) -> datetime:
    found = datetime.strptime(content.decode("ascii"), _FORMATS.get(tag, "")).replace(tzinfo=UTC)
    # RFC 5280: two digits from 50 on are of the last century; Python has 69 as the first of them.
    return found.replace(year=found.year - 100) if found.year > 2049 and len(content) == len("YYMMDDHHMMSSZ") else found
