"""The node's status from its inputs, setter by setter in upstream's order. Pure."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from klet.api.node import (
    LINUX,
    ContainerImage,
    DaemonEndpoint,
    Node,
    NodeDaemonEndpoints,
    NodeFeatures,
    NodeRuntimeHandler,
    NodeRuntimeHandlerFeatures,
    NodeStatus,
    NodeSwapStatus,
    NodeSystemInfo,
)
from klet.host.machine.info import MachineInfo
from klet.model.causes import Finding
from klet.model.images import ImageRecord
from klet.model.reasons import Reason
from klet.model.unknown import Unknown
from klet.node.addresses import set_addresses
from klet.node.capacity import compute_allocatable, compute_capacity
from klet.node.conditions import find_missing_capacity, set_pressures, set_ready
from klet.node.findings import find_reboot, find_status_change
from klet.node.runtime_state import RuntimeReport
from klet.node.settings import NodeSettings
from klet.node.status_inputs import StatusInputs
from klet.version import KUBELET_VERSION

NAMES_PER_IMAGE: Final = 5


class Composed(Struct, frozen=True):
    """A node as it should be reported, the findings of its changes, and the setters that failed."""

    node: Node
    findings: tuple[Finding, ...] = ()
    problems: tuple[str, ...] = ()


def compose_status(
    node: Node, seen: StatusInputs, settings: NodeSettings, *, was_unschedulable: bool = False
) -> Composed:
    """Run all setters over a node. One that fails leaves its part as it is; the rest still run."""
    addressed = set_addresses(node, seen.addresses, settings)
    problems = tuple(
        part.why for part in (addressed, seen.machine, seen.versions, seen.images) if isinstance(part, Unknown)
    )
    node = node if isinstance(addressed, Unknown) else addressed
    findings = (
        *_find_reboot(node, seen.machine),
        *_find_scheduling_change(node, was_unschedulable=was_unschedulable),
    )
    status = _set_machine(node.status, seen, settings)
    status = replace(
        status,
        node_info=_set_versions(status.node_info, seen, settings),
        daemon_endpoints=NodeDaemonEndpoints(kubelet_endpoint=DaemonEndpoint(port=settings.port)),
        images=() if isinstance(seen.images, Unknown) else list_images(seen.images, most=settings.max_images),
        runtime_handlers=list_handlers(seen.runtime),
        features=_features(status.features, seen.runtime),
        # As upstream: a node that declares nothing leaves what its object says.
        declared_features=settings.declared_features or status.declared_features,
        volumes_in_use=status.volumes_in_use if seen.volumes_in_use is None else seen.volumes_in_use,
    )
    pressures = set_pressures(status.conditions, seen.pressures, node=settings.name, now=seen.now)
    errors = (*seen.errors, *find_missing_capacity(status.capacity, counts_storage=settings.counts_storage))
    ready = set_ready(pressures.conditions, errors, seen.warnings, node=settings.name, now=seen.now)
    composed = replace(node, status=replace(status, conditions=ready.conditions))
    return Composed(composed, (*findings, *pressures.findings, *ready.findings), problems)


def list_images(images: Iterable[ImageRecord], *, most: int) -> tuple[ContainerImage, ...]:
    """Return the largest images, each with its digests, then its tags; -1: all of them."""
    ordered = sorted(images, key=lambda image: (image.size, image.id), reverse=True)
    return tuple(
        ContainerImage(names=(*image.digests, *image.tags)[:NAMES_PER_IMAGE], size_bytes=image.size)
        for image in (ordered if most < 0 else ordered[:most])
    )


def list_handlers(report: RuntimeReport) -> tuple[NodeRuntimeHandler, ...]:
    return tuple(
        NodeRuntimeHandler(
            name=handler.name,
            features=NodeRuntimeHandlerFeatures(
                recursive_read_only_mounts=handler.recursive_read_only_mounts,
                user_namespaces=handler.user_namespaces,
            ),
        )
        for handler in report.handlers
    )


def _set_machine(status: NodeStatus, seen: StatusInputs, settings: NodeSettings) -> NodeStatus:
    capacity = compute_capacity(
        status.capacity, seen.machine, storage=seen.storage, devices=seen.devices, settings=settings
    )
    allocatable = compute_allocatable(
        status.allocatable, capacity, devices=seen.devices, reservations=settings.reservations
    )
    info = status.node_info
    if isinstance(seen.machine, MachineInfo):
        machine = seen.machine
        info = replace(
            info,
            machine_id=machine.machine_id,
            system_uuid=machine.system_uuid,
            boot_id=machine.boot_id,
            swap=NodeSwapStatus(capacity=machine.swap) if machine.swap else info.swap,
        )
    return replace(status, capacity=capacity, allocatable=allocatable, node_info=info)


def _set_versions(info: NodeSystemInfo, seen: StatusInputs, settings: NodeSettings) -> NodeSystemInfo:
    info = replace(info, operating_system=LINUX, architecture=settings.architecture)
    if isinstance(seen.versions, Unknown):
        return info
    return replace(
        info,
        kernel_version=seen.versions.kernel,
        os_image=seen.versions.image,
        container_runtime_version=seen.runtime_version,
        kubelet_version=KUBELET_VERSION,
        kube_proxy_version=KUBELET_VERSION if settings.shows_proxy_version else "",
    )


def _features(before: NodeFeatures | None, report: RuntimeReport) -> NodeFeatures | None:
    if report.supplemental_groups_policy is None:
        return before
    return NodeFeatures(supplemental_groups_policy=report.supplemental_groups_policy)


def _find_reboot(node: Node, machine: MachineInfo | Unknown) -> tuple[Finding, ...]:
    reported = node.status.node_info.boot_id
    if isinstance(machine, Unknown) or not reported or reported == machine.boot_id:
        return ()
    return (find_reboot(node.metadata.name, machine.boot_id),)


def _find_scheduling_change(node: Node, *, was_unschedulable: bool) -> tuple[Finding, ...]:
    if node.spec.unschedulable == was_unschedulable:
        return ()
    reason = Reason.NODE_NOT_SCHEDULABLE if node.spec.unschedulable else Reason.NODE_SCHEDULABLE
    return (find_status_change(node.metadata.name, reason),)
