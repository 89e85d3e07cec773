"""CSI drivers of this node, as the parts that call them know them."""

from msgspec import Struct


class CsiVersion(Struct, frozen=True):
    """A version of the CSI specification: its numbers, the major one first."""

    numbers: tuple[int, ...]

    def __str__(self) -> str:
        return ".".join(map(str, self.numbers))

    @property
    def major(self) -> int:
        return self.numbers[0]

    def is_older_than(self, other: "CsiVersion") -> bool:
        """Compare number by number; one that is missing is zero."""
        length = max(len(self.numbers), len(other.numbers))
        mine, theirs = ((*each.numbers, *(0,) * (length - len(each.numbers))) for each in (self, other))
        return mine < theirs


class RegisteredDriver(Struct, frozen=True, kw_only=True):
    """A CSI driver that is registered on this node."""

    name: str
    endpoint: str
    """The path of its socket."""
    version: CsiVersion
    """The newest version of the specification that it serves and the node can use."""
