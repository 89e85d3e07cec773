"""NUMA hints: from which nodes of the machine a resource of a container could come (topology manager). Pure values."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NewType, Protocol, TypeAlias

from msgspec import Struct

from klet.api.container import Container
from klet.api.pod import Pod
from klet.model.reasons import Reason

NumaMask = NewType("NumaMask", int)
"""A set of NUMA nodes: bit n stands for node n. Of masks of one size the smaller number is the narrower one."""


class Hint(Struct, frozen=True):
    """NUMA nodes that together have enough of a resource."""

    mask: NumaMask | None
    """None: any nodes will do."""
    preferred: bool
    """Whether no smaller set of nodes could have enough."""


Hints: TypeAlias = Mapping[str, tuple[Hint, ...] | None]
"""By resource. None: from wherever; no hint at all: there is not enough of it."""


class AllocationFailure(Struct, frozen=True):
    """A provider cannot give a container what it asks for, so the pod is rejected."""

    message: str
    reason: Reason | None = None
    """The provider's own; None: the failure is not an expected one (`UnexpectedAdmissionError`)."""


class HintProvider(Protocol):
    """A manager of one kind of resource: says where it could come from, and gives it (hint provider)."""

    def pod_hints(self, pod: Pod) -> Hints:
        """Return the hints for all containers of a pod together."""
        ...

    def container_hints(self, pod: Pod, container: Container) -> Hints: ...

    async def allocate(self, pod: Pod, container: Container, affinity: Hint) -> AllocationFailure | None:
        """Give a container its resource, near the nodes of the affinity. What was given is on disk then."""
        ...


def mask_of(nodes: Iterable[int]) -> NumaMask:
    mask = 0
    for node in nodes:
        mask |= 1 << node
    return NumaMask(mask)


def nodes_of(mask: NumaMask) -> Iterator[int]:
    """Return the nodes of a mask in ascending order."""
    bits = int(mask)
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
