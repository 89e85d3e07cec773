"""Applying a strategic merge patch (upstream: apimachinery's strategicpatch).

Maps merge and null deletes, as in a merge patch; the lists that `metadata` names merge by key. Directives in the patch:
`$patch` (replace or delete, in a map or as an element of a list), `$retainKeys`, `$setElementOrder/<list>` and
`$deleteFromPrimitiveList/<list>`.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from klet.api.base import ApiObject
from klet.api.patches.errors import MissingMergeKey, PatchError
from klet.api.patches.metadata import MergeList, merge_list
from klet.api.schema import ListOf, MapOf, Object, Opaque, Shape

DIRECTIVE: Final = "$patch"
RETAIN_KEYS: Final = "$retainKeys"
SET_ELEMENT_ORDER: Final = "$setElementOrder/"
DELETE_FROM_LIST: Final = "$deleteFromPrimitiveList/"

REPLACE_LIST: Final[Mapping[str, str]] = {DIRECTIVE: "replace"}
"""As an element of a list: the other elements are the whole new list."""

Json = dict[str, Any]


def apply_strategic_patch(data: Mapping[str, Any], patch: Mapping[str, Any], struct: type[ApiObject]) -> Json:
    """Return the object, as plain data, with the patch applied."""
    return _merge_map(data, patch, Object(struct))


def list_strategy(shape: Shape, field: str) -> MergeList | None:
    return merge_list(shape.struct, field) if isinstance(shape, Object) else None


def shape_in(shape: Shape, field: str) -> Shape:
    """Return what a field holds; of data without a known type, nothing is known further down."""
    match shape:
        case Object():
            known = shape.fields.get(field)
            return known.shape if known else Opaque()
        case MapOf(value):
            return value
        case _:
            return Opaque()


def item_shape(shape: Shape) -> Shape:
    return shape.item if isinstance(shape, ListOf) else Opaque()


def merge_key_of(element: Any, key: str) -> Any:
    """Return the value that names an element of a merge list."""
    if not isinstance(element, Mapping):
        raise PatchError(f"expected a map in a list merged by {key}, found {_show(element)}")
    if key not in element:
        raise MissingMergeKey(f"map: {_show(element)} does not contain declared merge key: {key}")
    return element[key]


def _merge_map(data: Mapping[str, Any], patch: Mapping[str, Any], shape: Shape) -> Json:
    match patch.get(DIRECTIVE, "merge"):
        case "merge":
            pass
        case "replace":
            return {key: value for key, value in patch.items() if key != DIRECTIVE}
        case "delete":
            return {}
        case unknown:
            raise PatchError(f"unknown patch type: {_show(unknown)} in map: {_show(patch)}")
    result = _retained(data, patch)
    plain = {key: value for key, value in patch.items() if not key.startswith("$")}
    for field, order in _lists(patch, SET_ELEMENT_ORDER, "setElementOrder"):
        merged = _merge_in_order(result.get(field), plain.pop(field, None), order, shape, field)
        if merged is not None:
            result[field] = merged
    for field, value in plain.items():
        if value is None:
            result.pop(field, None)
        elif field not in result:
            result[field] = _without_directives(value)
        else:
            result[field] = _merge_value(result[field], value, shape, field)
    for field, unwanted in _lists(patch, DELETE_FROM_LIST, "primitive"):
        if isinstance(present := result.get(field), list):
            result[field] = [item for item in present if item not in unwanted]
    return result


def _merge_value(before: Any, value: Any, shape: Shape, field: str) -> Any:
    if isinstance(before, Mapping) and isinstance(value, Mapping):
        return _merge_map(before, value, shape_in(shape, field))
    strategy = list_strategy(shape, field)
    if isinstance(before, list) and isinstance(value, list) and strategy:
        return _merge_list(before, value, strategy.key, item_shape(shape_in(shape, field)))
    return _without_directives(value)


def _retained(data: Mapping[str, Any], patch: Mapping[str, Any]) -> Json:
    """Return the fields that `$retainKeys` leaves; a patch may not set others than those."""
    if RETAIN_KEYS not in patch:
        return dict(data)
    keys = patch[RETAIN_KEYS]
    if not isinstance(keys, list):
        raise PatchError("invalid patch format of retainKeys")
    if any(value is not None and not key.startswith("$") and key not in keys for key, value in patch.items()):
        raise PatchError("invalid patch format of retainKeys")
    return {key: value for key, value in data.items() if key in keys}


def _lists(patch: Mapping[str, Any], prefix: str, name: str) -> list[tuple[str, list[Any]]]:
    """Return the directives that run beside a list: the field each is about, and its own list."""
    found = []
    for key, value in patch.items():
        if key.startswith(prefix):
            if not isinstance(value, list):
                raise PatchError(f"invalid patch format of {name} list")
            found.append((key.removeprefix(prefix), value))
    return found


def _merge_in_order(before: Any, changes: Any, order: list[Any], shape: Shape, field: str) -> list[Any] | None:
    """Merge a list and put it in the order that was asked for; elements that it does not name keep their place."""
    strategy = list_strategy(shape, field) or MergeList()
    if not all(value is None or isinstance(value, list) for value in (before, changes)):
        raise PatchError("invalid patch format of setElementOrder list")
    if before is None and changes is None:
        return None
    if changes and order:
        _check_order(changes, order, strategy.key)
    if before is None or changes is None:
        merged = _without_directives(changes if before is None else before)
    else:
        merged = _merge_list(before, changes, strategy.key, item_shape(shape_in(shape, field)))
    return _arrange(merged, order, before or [], strategy.key)


def _check_order(changes: Sequence[Any], order: Sequence[Any], key: str) -> None:
    wanted = iter([_identity(element, key) for element in order])
    for element in changes:
        if isinstance(element, Mapping) and DIRECTIVE in element:
            continue
        if _identity(element, key) not in wanted:  # which also moves `wanted` past the element
            shown = f"{_show(changes)}\n doesn't match {SET_ELEMENT_ORDER[:-1]} list:\n{_show(order)}"
            raise PatchError(f"The order in patch list:\n{shown}\n")


def _merge_list(before: list[Any], changes: list[Any], key: str, item: Shape) -> list[Any]:
    if not key:
        unique = {_identity(element, key): element for element in [*changes, *before]}
        return _arrange(list(unique.values()), changes, before, key)
    kept, wanted = _follow_directives(before, changes, key)
    merged = list(kept)
    places = _places(kept, key)
    for change in wanted:
        place = places.setdefault(_identity(change, key), len(merged))
        if place == len(merged):
            merged.append(_without_directives(change))
        else:
            merged[place] = _merge_map(merged[place], change, item)
    return _arrange(merged, wanted, kept, key)


def _follow_directives(before: list[Any], changes: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """Return what is left of a list after its deletions, and the changes that are none."""
    wanted, kept, replaced = [], before, False
    for change in changes:
        match change.get(DIRECTIVE) if isinstance(change, Mapping) else None:
            case None:
                wanted.append(change)
            case "delete":
                name = merge_key_of(change, key)
                kept = [element for element in kept if merge_key_of(element, key) != name]
            case "replace":
                replaced = True
            case "merge":
                raise PatchError("merging lists cannot yet be specified in the patch")
            case unknown:
                raise PatchError(f"unknown patch type: {_show(unknown)} in map: {_show(change)}")
    return (_without_directives(wanted), []) if replaced else (kept, wanted)


def _arrange(merged: list[Any], order: Sequence[Any], before: Sequence[Any], key: str) -> list[Any]:
    """Put the elements named in `order` in that order, and the others between them where they were before."""
    ranks, places = _places(order, key), _places(before, key)
    named = sorted(
        (element for element in merged if _identity(element, key) in ranks),
        key=lambda element: ranks[_identity(element, key)],
    )
    others = deque(element for element in merged if _identity(element, key) not in ranks)
    arranged: list[Any] = []
    for element in named:
        place = places.get(_identity(element, key), -1)
        while others and places.get(_identity(others[0], key), len(before)) < place:
            arranged.append(others.popleft())
        arranged.append(element)
    return arranged + list(others)


def _places(elements: Sequence[Any], key: str) -> dict[Any, int]:
    """Return where each element comes first in a list."""
    places: dict[Any, int] = {}
    for index, element in enumerate(elements):
        places.setdefault(_identity(element, key), index)
    return places


def _identity(element: Any, key: str) -> Any:
    """Return what names an element among the others: its merge key, or itself."""
    name = merge_key_of(element, key) if key else element
    return name if isinstance(name, str | int | float | None) else _show(name)


def _without_directives(value: Any) -> Any:
    """Return what a patch adds where nothing was: its values without nulls and directives."""
    if isinstance(value, Mapping):
        if value.get(DIRECTIVE) == "delete":
            return {}
        plain = {key: inner for key, inner in value.items() if inner is not None and not key.startswith("$")}
        return {key: _without_directives(inner) for key, inner in plain.items()}
    if isinstance(value, list):
        kept = (element for element in value if not (isinstance(element, Mapping) and DIRECTIVE in element))
        return [_without_directives(element) for element in kept]
    return value


def _show(value: Any) -> str:
    """Return a value as Go prints it."""
    match value:
        case Mapping():
            return f"map[{' '.join(f'{key}:{_show(inner)}' for key, inner in sorted(value.items()))}]"
        case list() | tuple():
            return f"[{' '.join(map(_show, value))}]"
        case None:
            return "<nil>"
        case bool():
            return str(value).lower()
        case _:
            return str(value)
