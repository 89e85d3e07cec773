"""Changing tuples of immutable values while keeping what stays the same."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def map_tuple(items: tuple[T, ...], change: Callable[[T], T]) -> tuple[T, ...]:
    """Apply a change to each item; the same tuple when none changed."""
    if not items:
        return items
    changed = tuple(map(change, items))
    return items if all(new is old for new, old in zip(changed, items, strict=True)) else changed
