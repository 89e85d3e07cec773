"""What all API structs are made of: the base struct, required fields and the small wire types."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, field

T = TypeVar("T")

Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

IntOrString: TypeAlias = Int32 | str
"""A port number or the name of a port."""

JsonObject: TypeAlias = Mapping[str, Any]
"""Data of someone else's type that is only passed on (RawExtension, FieldsV1)."""


class ApiObject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A Kubernetes object: immutable, unknown fields ignored."""


def required(empty: Callable[[], T], *, name: str | None = None) -> T:
    """Make a field that is always written, even when empty, yet may be absent in what is read.

    Absence is reported by validation, which can name the field, and not by the decoder.
    """

    def build() -> T:
        # Were the factory `tuple` or `dict` itself, msgspec would know an empty one for the default and leave it out.
        return empty()

    return field(default_factory=build, name=name)


def json_null() -> msgspec.Raw:
    return msgspec.Raw(b"null")
