"""JSON patch (RFC 6902): a list of operations on JSON pointers, all of which succeed or none."""

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from klet.api.patches.errors import PatchError, TooManyOperations
from klet.api.patches.merge_patch import same

MAX_OPERATIONS: Final = 10_000
MAX_COPIED: Final = 3 << 20
"""Bytes of JSON that all copies of one patch may have, as in upstream: copies of copies grow without end."""


def apply_json_patch(data: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    if len(operations) > MAX_OPERATIONS:
        raise TooManyOperations(f"a JSON patch may have {MAX_OPERATIONS} operations, this one has {len(operations)}")
    # A holder, so that the whole document is a value with a parent like any other.
    holder = {"": copy.deepcopy(data)}
    copied = 0
    for operation in operations:
        if not isinstance(operation, Mapping):
            raise PatchError("a JSON patch operation must be an object")
        name = operation.get("op")
        apply = _OPERATIONS.get(name) if isinstance(name, str) else None
        if apply is None:
            raise PatchError(f"unknown JSON patch operation: {name!r}")
        copied += _size_of_copy(holder, operation) if name == "copy" else 0
        if copied > MAX_COPIED:
            raise PatchError(f"the JSON patch copies more than {MAX_COPIED} bytes")
        apply(holder, operation)
    return holder[""]


def _add(holder: Any, operation: Mapping[str, Any]) -> None:
    _insert(holder, _pointer(operation, "path"), copy.deepcopy(_value(operation)))


def _remove(holder: Any, operation: Mapping[str, Any]) -> None:
    _take_out(holder, _pointer(operation, "path"))


def _replace(holder: Any, operation: Mapping[str, Any]) -> None:
    parent, last = _find_parent(holder, _pointer(operation, "path"))
    _get(parent, last)
    parent[int(last) if isinstance(parent, list) else last] = copy.deepcopy(_value(operation))


def _move(holder: Any, operation: Mapping[str, Any]) -> None:
    source, target = _pointer(operation, "from"), _pointer(operation, "path")
    if len(source) < len(target) and target[: len(source)] == source:
        raise PatchError(f"{_show(source)} cannot be moved into itself")
    _insert(holder, target, _take_out(holder, source))


def _copy(holder: Any, operation: Mapping[str, Any]) -> None:
    parent, last = _find_parent(holder, _pointer(operation, "from"))
    _insert(holder, _pointer(operation, "path"), copy.deepcopy(_get(parent, last)))


def _size_of_copy(holder: Any, operation: Mapping[str, Any]) -> int:
    parent, last = _find_parent(holder, _pointer(operation, "from"))
    return len(msgspec.json.encode(_get(parent, last)))


def _test(holder: Any, operation: Mapping[str, Any]) -> None:
    path = _pointer(operation, "path")
    parent, last = _find_parent(holder, path)
    if not same(_get(parent, last), _value(operation)):
        raise PatchError(f"testing value {_show(path)} failed")


_OPERATIONS: Final[Mapping[str, Callable[[Any, Mapping[str, Any]], None]]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")


def _pointer(operation: Mapping[str, Any], name: str) -> list[str]:
    """Return the steps of a JSON pointer, of which the first leads from the holder to the document."""
    text = operation.get(name)
    if not isinstance(text, str) or (text and not text.startswith("/")) or re.search(r"~(?![01])", text):
        raise PatchError(f"{name} of a JSON patch operation must be a JSON pointer, not {text!r}")
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")]


def _value(operation: Mapping[str, Any]) -> Any:
    if "value" not in operation:
        raise PatchError(f"JSON patch operation {operation['op']!r} needs a value")
    return operation["value"]


def _find_parent(holder: Any, steps: Sequence[str]) -> tuple[Any, str]:
    here = holder
    for step in steps[:-1]:
        here = _get(here, step)
    return here, steps[-1]


def _get(parent: Any, step: str) -> Any:
    if isinstance(parent, dict) and step in parent:
        return parent[step]
    if isinstance(parent, list) and _INDEX.fullmatch(step) and int(step) < len(parent):
        return parent[int(step)]
    raise PatchError(f"there is nothing at {step!r}")


def _insert(holder: Any, steps: Sequence[str], value: Any) -> None:
    parent, last = _find_parent(holder, steps)
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list) and last == "-":
        parent.append(value)
    elif isinstance(parent, list) and _INDEX.fullmatch(last) and int(last) <= len(parent):
        parent.insert(int(last), value)
    else:
        raise PatchError(f"nothing can be added at {_show(steps)}")


def _take_out(holder: Any, steps: Sequence[str]) -> Any:
    parent, last = _find_parent(holder, steps)
    value = _get(parent, last)
    del parent[int(last) if isinstance(parent, list) else last]
    return value


def _show(steps: Sequence[str]) -> str:
    return "/".join(step.replace("~", "~0").replace("/", "~1") for step in steps)
