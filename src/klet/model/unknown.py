"""The answer of a port or a part that could not find something out. Pure."""

from msgspec import Struct


class Unknown(Struct, frozen=True):
    """Could not be found out, and why."""

    why: str
