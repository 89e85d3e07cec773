"""A value that could not be read. Pure."""

from msgspec import Struct


class Unknown(Struct, frozen=True):
    """The value could not be read, and why."""

    why: str
