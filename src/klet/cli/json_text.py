"""JSON as people read it."""

import msgspec


def as_json_text(data: bytes) -> str:
    return msgspec.json.format(data, indent=2).decode() + "\n"
