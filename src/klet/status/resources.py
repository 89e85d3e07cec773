"""The resources that a container is reported with: what it was given, as far as the runtime says so.

Upstream's convertContainerStatusResources.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from klet.api.container import Container, EphemeralContainer, ResourceRequirements
from klet.api.container_status import ContainerStatus
from klet.api.quantity import Format, Quantity
from klet.model.pod_resources import CPU, MEMORY
from klet.model.runtime import ContainerRecord, ContainerState, GivenResources

LEAST_LIMIT = 10
LEAST_REQUEST = 2
"""The kernel takes no less, in thousandths of a CPU: a smaller wish comes back larger, and is reported as it was."""


def build_resources(
    container: Container | EphemeralContainer, record: ContainerRecord, previous: ContainerStatus | None
) -> ResourceRequirements:
    """What the spec gives the container, overlaid with what it runs with."""
    allocated = container.resources
    if record.state is not ContainerState.RUNNING:
        return allocated
    given = record.resources or GivenResources()
    before = _reported_before(record, previous)
    limits, requests = dict(allocated.limits), dict(allocated.requests)
    if limits:
        _overlay_cpu(limits, given.cpu_limit, before.limits, least=LEAST_LIMIT)
        if given.memory_limit is not None:
            limits[MEMORY] = Quantity.of(given.memory_limit, Format.BINARY_SI)
        else:
            _keep(limits, MEMORY, before.limits)
    if requests:
        _overlay_cpu(requests, given.cpu_request, before.requests, least=LEAST_REQUEST)
        _keep(requests, MEMORY, before.requests)  # no runtime tells it
    return replace(allocated, limits=limits, requests=requests)


def _reported_before(record: ContainerRecord, previous: ContainerStatus | None) -> ResourceRequirements:
    """What this same instance was reported with while it ran."""
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
