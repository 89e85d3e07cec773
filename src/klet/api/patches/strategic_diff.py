"""Making the strategic merge patch between two states of an object (upstream: CreateTwoWayMergePatch)."""

from collections.abc import Mapping
from typing import Any

from klet.api.base import ApiObject
from klet.api.codec import to_builtins
from klet.api.patches.merge_patch import same
from klet.api.patches.metadata import MergeList
from klet.api.patches.strategic import (
    DELETE_FROM_LIST,
    DIRECTIVE,
    RETAIN_KEYS,
    SET_ELEMENT_ORDER,
    Json,
    item_shape,
    list_strategy,
    merge_key_of,
    shape_in,
)
from klet.api.schema import Object, Shape

State = ApiObject | Mapping[str, Any]


def create_strategic_patch(old: State, new: State, struct: type[ApiObject]) -> Json:
    """Return the patch that makes `new` of `old`; empty if they do not differ."""
    if isinstance(old, ApiObject) and isinstance(new, ApiObject):
        old, new = _differing(old, new)
    return _diff_map(_plain(old), _plain(new), Object(struct), retain_keys=False)


def _differing(old: ApiObject, new: ApiObject) -> tuple[ApiObject, ApiObject]:
    """Return both with only the differing fields: comparing structs is cheap, turning them into data is not."""
    fields: dict[str, tuple[Any, Any]] = {}
    for name in old.__struct_fields__:
        before, after = getattr(old, name), getattr(new, name)
        if before is after or before == after:
            continue
        if isinstance(before, ApiObject) and isinstance(after, ApiObject):
            before, after = _differing(before, after)
        fields[name] = before, after
    return (
        type(old)(**{name: before for name, (before, _) in fields.items()}),
        type(new)(**{name: after for name, (_, after) in fields.items()}),
    )


def _plain(state: State) -> Mapping[str, Any]:
    plain: Mapping[str, Any] = to_builtins(state) if isinstance(state, ApiObject) else state
    return plain


def _diff_map(old: Mapping[str, Any], new: Mapping[str, Any], shape: Shape, *, retain_keys: bool) -> Json:
    patch: Json = {}
    for field, value in new.items():
        before = old.get(field)
        strategy = list_strategy(shape, field)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            if inner := _diff_map(before, value, shape_in(shape, field), retain_keys=False):
                patch[field] = inner
        elif isinstance(before, list) and isinstance(value, list) and strategy:
            patch |= _diff_list(field, before, value, strategy, item_shape(shape_in(shape, field)))
        elif field not in old or not same(before, value):
            patch[field] = value
    patch |= {field: None for field in old if field not in new}
    if retain_keys and patch:
        patch[RETAIN_KEYS] = sorted(field for field, value in new.items() if value is not None)
    return patch


def _diff_list(field: str, old: list[Any], new: list[Any], strategy: MergeList, item: Shape) -> Json:
    if not old:
        return {field: new} if new else {}
    return _diff_elements(field, old, new, strategy, item) if strategy.key else _diff_set(field, old, new)


def _diff_elements(field: str, old: list[Any], new: list[Any], strategy: MergeList, item: Shape) -> Json:
    key = strategy.key
    left: dict[Any, list[Any]] = {}
    for element in old:
        left.setdefault(merge_key_of(element, key), []).append(element)
    changes: list[Json] = []
    for element in new:
        name = merge_key_of(element, key)
        if before := left.get(name):
            change = _diff_map(before.pop(0), element, item, retain_keys=strategy.retain_keys)
            if change:
                changes.append({**change, key: name})
        else:
            changes.append(element)
    gone = sorted((name for name, elements in left.items() for _ in elements), key=str)
    changes += [{DIRECTIVE: "delete", key: name} for name in gone]
    names = [element[key] for element in new]
    if not changes and names == [element[key] for element in old]:
        return {}
    patch: Json = {field: changes} if changes else {}
    if new:
        patch[f"{SET_ELEMENT_ORDER}{field}"] = [{key: name} for name in names]
    return patch


def _diff_set(field: str, old: list[Any], new: list[Any]) -> Json:
    patch: Json = {}
    if added := [value for value in new if value not in old]:
        patch[field] = added
    if gone := [value for value in old if value not in new]:
        patch[f"{DELETE_FROM_LIST}{field}"] = sorted(set(gone), key=str)
    if new and new != old:
        patch[f"{SET_ELEMENT_ORDER}{field}"] = new
    return patch
