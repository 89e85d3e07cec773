"""Values that hold secrets: their `repr` shows the other fields only, so that no log and no traceback has them."""

from typing import ClassVar

from msgspec import Struct


class HidesFields(Struct, frozen=True):
    """A value with fields that are never shown."""

    HIDDEN: ClassVar[frozenset[str]]

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name not in self.HIDDEN)
        return f"{type(self).__name__}({', '.join(shown)})"
