"""JSON merge patch (RFC 7386): null deletes, objects merge, everything else is replaced."""

from collections.abc import Mapping
from typing import Any


def same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def apply_merge_patch(data: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    result = dict(data) if isinstance(data, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), value)
    return result


def create_merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the smallest patch that makes `new` of `old`; neither may hold nulls, which a merge patch cannot set."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            if inner := create_merge_patch(before, value):
                patch[key] = inner
        elif key not in old or not same(before, value):
            patch[key] = value
    return patch
