"""What a pod has been given of the node, as a value: resources admitted, actuated, actual. Pure.

Whatever limits, starts or reports containers gets these values. The spec says what is *desired*, and that may change
while the pod runs; what was given changes only when the node decides so.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from klet.api.container import ResourceRequirements
from klet.api.pod import Pod
from klet.api.pod_resources import is_sidecar
from klet.api.quantity import Quantity
from klet.model.pods import PodUID
from klet.model.runtime import GivenResources

NOTHING: Final = ResourceRequirements()


class ContainerAllocation(Struct, frozen=True, kw_only=True):
    """The resources of one container."""

    name: str
    given: ResourceRequirements = NOTHING
    is_sidecar: bool = False
    """An init container that runs beside the regular ones."""


class PodAllocation(Struct, frozen=True, kw_only=True):
    """The resources of one pod: of its containers, in the order of the spec, and of the pod as a whole.

    Regular containers and sidecars are those that a resize may change.
    """

    containers: tuple[ContainerAllocation, ...] = ()
    init_containers: tuple[ContainerAllocation, ...] = ()
    pod_level: ResourceRequirements | None = None
    overhead: Mapping[str, Quantity] = {}

    def of(self, container: str) -> ResourceRequirements:
        """Return what a container was given; an ephemeral one is never given anything."""
        every = (*self.containers, *self.init_containers)
        return next((each.given for each in every if each.name == container), NOTHING)

    @property
    def pod_requests(self) -> Mapping[str, Quantity]:
        """What the pod requests as a whole; empty if only its containers do."""
        return self.pod_level.requests if self.pod_level is not None else {}

    @property
    def pod_limits(self) -> Mapping[str, Quantity]:
        """What the pod is limited to as a whole; empty if only its containers are."""
        return self.pod_level.limits if self.pod_level is not None else {}


class Pins(Struct, frozen=True, kw_only=True):
    """The parts of the machine that a container is kept on; none: it may run anywhere."""

    cpus: frozenset[int] = frozenset()
    """Its own, or those that all containers without their own share."""
    memory_nodes: frozenset[int] = frozenset()
    """The NUMA nodes that its memory comes from."""
    lifts_quota: bool = False
    """Whether its CPU limit is not enforced, since no other container runs on its CPUs."""


NO_PINS: Final = Pins()


class CpuUse(Struct, frozen=True, kw_only=True):
    """Whose the CPUs of the machine are."""

    shared: frozenset[int]
    """Where containers run that have no CPUs of their own."""
    reserved: frozenset[int] = frozenset()
    """Kept for the system; shared as well, unless the reservation is strict."""
    exclusive: Mapping[PodUID, Mapping[str, frozenset[int]]] = {}
    """By pod and container."""


class Actuated(Struct, frozen=True, kw_only=True):
    """What this run of the agent last handed to the runtime and to the cgroups."""

    containers: Mapping[str, ResourceRequirements] = {}
    """What the newest container of a name was created with."""
    cgroup: PodAllocation | None = None
    """What the values of the pod's own cgroup were computed from."""


class PodResources(Struct, frozen=True, kw_only=True):
    """All that is known of a pod's resources: what was decided, handed on, and found."""

    admitted: PodAllocation
    actuated: Actuated = Actuated()
    actual: Mapping[str, GivenResources] = {}
    """What the runtime says that the newest container of a name has."""


def desired_allocation(pod: Pod) -> PodAllocation:
    """Return what the spec asks for. Whether the pod is given that is decided in `allocation/` alone."""
    spec = pod.spec
    return PodAllocation(
        containers=tuple(ContainerAllocation(name=each.name, given=each.resources) for each in spec.containers),
        init_containers=tuple(
            ContainerAllocation(name=each.name, given=each.resources, is_sidecar=is_sidecar(each))
            for each in spec.init_containers
        ),
        pod_level=spec.resources,
        overhead=spec.overhead,
    )
