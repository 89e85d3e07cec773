"""JSON as people read it."""

import msgspec


def as_json_text(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
