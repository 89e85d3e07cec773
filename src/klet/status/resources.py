"""The resources that a container is reported with: what it was given, as far as the runtime says so.

Upstream's convertContainerStatusResources.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from klet.api.container import ResourceRequirements
from klet.api.container_status import ContainerStatus
from klet.api.quantity import Format, Quantity
from klet.model.allocation import NOTHING, PodResources
from klet.model.pod_resources import CPU, MEMORY
from klet.model.runtime import ContainerRecord, GivenResources, RuntimeContainerState

LEAST_LIMIT = 10
LEAST_REQUEST = 2
"""The kernel takes no less, in thousandths of a CPU: a smaller wish comes back larger, and is reported as it was."""


def build_resources(
    resources: PodResources, record: ContainerRecord, previous: ContainerStatus | None
) -> ResourceRequirements:
    """Return what the container was admitted with, overlaid with what it runs with."""
    admitted = resources.admitted.of(record.name)
    if record.state is not RuntimeContainerState.RUNNING:
        return admitted
    actuated = resources.actuated.containers.get(record.name, NOTHING)
    given = resources.actual.get(record.name, GivenResources())
    before = _reported_before(record, previous)
    limits, requests = dict(admitted.limits), dict(admitted.requests)
    if limits:
        _overlay_cpu(limits, given.cpu_limit, before.limits, least=LEAST_LIMIT)
        if given.memory_limit is not None:
            limits[MEMORY] = Quantity.of(given.memory_limit, Format.BINARY_SI)
        else:
            _keep(limits, MEMORY, before.limits)
    if requests:
        _overlay_cpu(requests, given.cpu_request, before.requests, least=LEAST_REQUEST)
        # No runtime reports it: what the container was created with counts, as far as this run of the agent knows it.
        _keep(requests, MEMORY, {**before.requests, **actuated.requests})
    return replace(admitted, limits=limits, requests=requests)


def _reported_before(record: ContainerRecord, previous: ContainerStatus | None) -> ResourceRequirements:
    """Return what this same instance was reported with while it ran."""
    if previous is None or previous.resources is None or previous.state.running is None:
        return ResourceRequirements()
    is_same = previous.container_id.rpartition("://")[2] == record.id
    return previous.resources if is_same else ResourceRequirements()


def _overlay_cpu(wanted: dict[str, Quantity], given: int | None, before: Mapping[str, Quantity], *, least: int) -> None:
    if given is None:
        _keep(wanted, CPU, before)
    elif given > least or wanted.get(CPU, Quantity()).milli_value() > least:
        wanted[CPU] = Quantity.of_milli(given)


def _keep(wanted: dict[str, Quantity], name: str, before: Mapping[str, Quantity]) -> None:
    if name in before:
        wanted[name] = before[name]
