"""Finding things by id or prefix of an id."""

from collections.abc import Mapping
from typing import TypeVar

from klet.cri.errors import Code
from klet.testing.fake_runtime.calls import RpcFailure

T = TypeVar("T")


def find(things: Mapping[str, T], id_: str, what: str) -> T:
    """By id or by a prefix that fits only one; `what` begins the message otherwise."""
    if (thing := things.get(id_)) is not None:
        return thing
    if not id_:
        raise RpcFailure(Code.UNKNOWN, f"{what}: Prefix can't be empty")
    found = [thing for key, thing in things.items() if key.startswith(id_)]
    if len(found) > 1:
        raise RpcFailure(Code.UNKNOWN, f"{what}: Multiple IDs found with provided prefix: {id_}")
    if not found:
        raise RpcFailure(Code.NOT_FOUND, f"{what}: not found")
    return found[0]
