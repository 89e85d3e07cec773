"""Paths to fields of API objects, as error messages print them: `spec.containers[0].image`, `metadata.labels[key]`."""

from typing import Final


class FieldPath(str):
    """The printed form of a path, with the three ways to go one step deeper."""

    __slots__ = ()

    def child(self, name: str, *more: str) -> "FieldPath":
        if more:
            name = ".".join((name, *more))
        return FieldPath(self + "." + name if self else name)

    def at(self, position: int) -> "FieldPath":
        return FieldPath(f"{self}[{position}]")

    def key(self, key: str) -> "FieldPath":
        return FieldPath(f"{self}[{key}]")


ROOT: Final = FieldPath("")
METADATA: Final = FieldPath("metadata")
SPEC: Final = FieldPath("spec")
STATUS: Final = FieldPath("status")
