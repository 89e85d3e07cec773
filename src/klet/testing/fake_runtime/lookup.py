"""Finding things by id, prefix of an id, or labels."""

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from klet.cri.errors import Code
from klet.testing.fake_runtime.calls import RpcFailure

T = TypeVar("T")


class Labelled(Protocol):
    """What a filter can select."""

    labels: dict[str, str]


L = TypeVar("L", bound=Labelled)


def find(things: Mapping[str, T], id_: str, what: str) -> T:
    """Find by id or by a prefix that fits only one; `what` begins the message otherwise."""
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


def select(things: Iterable[L], selector: Mapping[str, str]) -> Iterable[L]:
    """Return those that have all the labels."""
    for key, value in selector.items():
        things = [thing for thing in things if thing.labels.get(key) == value]
    return things
