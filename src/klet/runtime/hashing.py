"""The hash of a container's definition, equal to upstream's, so that each kubelet recognises the other's containers."""

from functools import lru_cache

from klet.api.container import Container, EphemeralContainer

_FNV32_OFFSET = 0x811C9DC5
_FNV32_PRIME = 0x01000193

# Go's JSON encoder writes these as escapes even inside plain strings.
_HTML_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def container_hash(container: Container | EphemeralContainer) -> int:
    """Only the name and the image count: other changes never restart a container."""
    return _hash_of(container.name, container.image)


@lru_cache(maxsize=4096)
def _hash_of(name: str, image: str) -> int:
    """Asked at every sync of every pod, and slow to compute."""
    picked = f'{{"image":{_go_json_string(image)},"name":{_go_json_string(name)}}}'
    # Upstream hashes the Go-syntax dump of the byte slice, not the bytes themselves.
    dump = "([]uint8)[" + " ".join(str(byte) for byte in picked.encode()) + "]"
    return fnv32a(dump.encode())


def fnv32a(data: bytes) -> int:
    value = _FNV32_OFFSET
    for byte in data:
        value = ((value ^ byte) * _FNV32_PRIME) & 0xFFFFFFFF
    return value


def _go_json_string(text: str) -> str:
    escaped = []
    for character in text:
        if character in '"\\':
            escaped.append("\\" + character)
        elif character in _HTML_ESCAPES:
            escaped.append(_HTML_ESCAPES[character])
        elif character in "\n\r\t\b\f":
            escaped.append({"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}[character])
        elif character < " ":
            escaped.append(f"\\u{ord(character):04x}")
        else:
            escaped.append(character)
    return '"' + "".join(escaped) + '"'
