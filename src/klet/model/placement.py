"""On which CPUs and NUMA nodes containers would be placed, as a value."""

from msgspec import Struct

from klet.model.reasons import RejectionReason


class ContainerPlacement(Struct, frozen=True, kw_only=True):
    """Where one container would be."""

    container: str
    cpus: tuple[int, ...] = ()
    """Those that it would have for itself; none: it shares the CPUs of the others."""
    numa_nodes: tuple[int, ...] = ()
    """From which its CPUs, memory and devices would come; none: from wherever."""


class PlacementRefusal(Struct, frozen=True, kw_only=True):
    """Why no place can be found."""

    reason: RejectionReason
    message: str


class PodPlacement(Struct, frozen=True, kw_only=True):
    """Where the containers of a pod would be; of one that may run anywhere nothing is said."""

    containers: tuple[ContainerPlacement, ...] = ()
    refusal: PlacementRefusal | None = None
