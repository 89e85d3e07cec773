"""Finding things by id, prefix of an id, or filter."""

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


def matches(id_: str, wanted: str) -> bool:
    """Whether an id fits that of a filter, which may be short or missing."""
    return not wanted or id_.startswith(wanted)


def has_labels(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    for key, value in selector.items():  # noqa: SIM110  # a generator costs more than the comparison, a thousand times
        if labels.get(key) != value:
            return False
    return True
