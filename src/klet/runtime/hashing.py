"""The hash of a container's definition, equal to upstream's, so that each kubelet recognises the other's containers."""

from functools import lru_cache

from klet.api.codec import encode
from klet.api.container import Container, EphemeralContainer

_FNV32_OFFSET = 0x811C9DC5
_FNV32_PRIME = 0x01000193

_DECIMALS = tuple(str(byte).encode() for byte in range(256))
_ESCAPES = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


def container_hash(container: Container | EphemeralContainer) -> int:
    """Hash the name and the image alone: other changes never restart a container."""
    return _hash_of(container.name, container.image)


@lru_cache(maxsize=4096)
def _hash_of(name: str, image: str) -> int:
    """Return the hash; cached, as every sync needs those of all containers of its pod."""
    picked = go_json({"image": image, "name": name})
    # Upstream hashes the Go-syntax dump of the byte slice, not the bytes themselves.
    return fnv32a(b"([]uint8)[" + b" ".join(_DECIMALS[byte] for byte in picked.encode()) + b"]")


def go_json(obj: object) -> str:
    """Encode JSON letter by letter as Go does: some characters are escaped even inside plain strings."""
    return encode(obj).decode().translate(_ESCAPES)


def fnv32a(data: bytes) -> int:
    value = _FNV32_OFFSET
    for byte in data:
        value = ((value ^ byte) * _FNV32_PRIME) & 0xFFFFFFFF
    return value
