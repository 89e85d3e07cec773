"""The node's object: as it is first registered, and as one that is already there is adopted (upstream: `initialNode`
and the reconcile functions of `tryRegisterWithAPIServer`). Pure.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from klet.api.meta import ObjectMeta
from klet.api.node import LINUX, OS_LABEL, Node, NodeSpec, NodeStatus
from klet.api.patches.strategic import REPLACE_LIST, Json
from klet.api.patches.strategic_diff import create_strategic_patch
from klet.api.placement import Taint
from klet.api.quantity import ZERO
from klet.api.validation.resources import is_extended_resource
from klet.node.capacity import is_hugepage
from klet.node.settings import NodeSettings

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
ARCH_LABEL: Final = "kubernetes.io/arch"
_BETA_OS: Final = "beta.kubernetes.io/os"
_BETA_ARCH: Final = "beta.kubernetes.io/arch"
_RECONCILED: Final = (
    HOSTNAME_LABEL,
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    OS_LABEL,
    ARCH_LABEL,
    _BETA_OS,
    _BETA_ARCH,
)
"""Labels that are set again on an adopted node; others are the administrator's."""

ATTACH_ANNOTATION: Final = "volumes.kubernetes.io/controller-managed-attach-detach"
CLOUD_TAINT: Final = Taint(key="node.cloudprovider.kubernetes.io/uninitialized", value="true", effect="NoSchedule")


def build_initial_node(settings: NodeSettings) -> Node:
    """Return the node before its status is set."""
    taints = (*settings.taints, CLOUD_TAINT) if settings.has_external_cloud else settings.taints
    return Node(
        metadata=ObjectMeta(
            name=settings.name,
            labels={
                HOSTNAME_LABEL: settings.name,
                OS_LABEL: LINUX,
                ARCH_LABEL: settings.architecture,
                _BETA_OS: LINUX,
                _BETA_ARCH: settings.architecture,
                **settings.labels,
            },
            annotations={ATTACH_ANNOTATION: "true"} if settings.has_attach_controller else {},
        ),
        spec=NodeSpec(taints=taints, provider_id=settings.provider_id),
    )


def adopt_node(existing: Node, initial: Node, *, reset_devices: bool) -> Node:
    """Return the node that is there, with what it must share with the one that would have been registered.

    `reset_devices`: no device plugin has been seen yet and none is remembered, so what they offered is not there.
    """
    metadata = replace(
        existing.metadata,
        labels=_adopt_labels(existing.metadata.labels, initial.metadata.labels),
        annotations=_adopt_annotations(existing.metadata.annotations, initial.metadata.annotations),
    )
    status = replace(
        existing.status,
        capacity=existing.status.capacity or initial.status.capacity,
        allocatable=existing.status.allocatable or initial.status.allocatable,
    )
    if reset_devices:
        status = _without_devices(status)
    return replace(existing, metadata=metadata, status=_adopt_hugepages(status, initial.status))


def repair_labels(node: Node, settings: NodeSettings) -> Node:
    """Return the node with the two labels that schedulers rely on as they should be."""
    labels = {**node.metadata.labels, OS_LABEL: LINUX, ARCH_LABEL: settings.architecture}
    return node if labels == node.metadata.labels else replace(node, metadata=replace(node.metadata, labels=labels))


def build_status_patch(old: Node, new: Node) -> Json:
    """Return what to send to the status subresource: metadata and status, never the spec."""
    # Addresses are merged by their types although two may share one, so a change replaces the list.
    replaces = bool(old.status.addresses) and old.status.addresses != new.status.addresses
    status = replace(new.status, addresses=old.status.addresses) if replaces else new.status
    patch = create_strategic_patch(
        Node(metadata=old.metadata, status=old.status), Node(metadata=new.metadata, status=status), Node
    )
    if replaces:
        addresses = [{"type": each.type, "address": each.address} for each in new.status.addresses]
        patch["status"] = {**patch.get("status", {}), "addresses": [*addresses, REPLACE_LIST]}
    return patch


def _adopt_labels(existing: Mapping[str, str], initial: Mapping[str, str]) -> dict[str, str]:
    labels = {**existing, **{name: initial[name] for name in _RECONCILED if name in initial}}
    return {name: value for name, value in labels.items() if value or name not in initial or name not in _RECONCILED}


def _adopt_annotations(existing: Mapping[str, str], initial: Mapping[str, str]) -> dict[str, str]:
    annotations = {name: value for name, value in existing.items() if name != ATTACH_ANNOTATION}
    if ATTACH_ANNOTATION in initial:
        annotations[ATTACH_ANNOTATION] = initial[ATTACH_ANNOTATION]
    return annotations


def _without_devices(status: NodeStatus) -> NodeStatus:
    none = dict.fromkeys((name for name in status.capacity if is_extended_resource(name)), ZERO)
    return replace(status, capacity={**status.capacity, **none}, allocatable={**status.allocatable, **none})


def _adopt_hugepages(status: NodeStatus, initial: NodeStatus) -> NodeStatus:
    sizes = [name for name in initial.capacity if is_hugepage(name)]
    gone = [name for name in status.capacity if is_hugepage(name) and name not in sizes]
    capacity = {name: amount for name, amount in status.capacity.items() if name not in gone}
    allocatable = {name: amount for name, amount in status.allocatable.items() if name not in gone}
    for name in sizes:
        capacity[name] = initial.capacity[name]
        allocatable[name] = initial.allocatable.get(name, ZERO)
    return replace(status, capacity=capacity, allocatable=allocatable)
