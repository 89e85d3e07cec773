"""What the Node and the CSINode say of the drivers of a node (upstream: the update functions of the node info
manager). Pure.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from klet.api.codec import encode
from klet.api.meta import ObjectMeta, OwnerReference
from klet.api.node import Node
from klet.api.patches.strategic import Json
from klet.api.patches.strategic_diff import create_strategic_patch
from klet.api.storage import CSINode, CSINodeDriver, VolumeNodeResources
from klet.csi.client import CsiNodeInfo
from klet.model.downward import quoted

NODE_ID_ANNOTATION: Final = "csi.volume.kubernetes.io/nodeid"
MIGRATED_ANNOTATION: Final = "storage.alpha.kubernetes.io/migrated-plugins"
MIGRATED_PLUGINS: Final = ",".join(
    f"kubernetes.io/{name}"
    for name in ("aws-ebs", "azure-disk", "azure-file", "cinder", "gce-pd", "portworx-volume", "vsphere-volume")
)
MOST_VOLUMES: Final = 2**31 - 1
_LEGACY_LIMIT: Final = "attachable-volumes-csi-"


class Unusable(Struct, frozen=True):
    """Why an object cannot say what it should."""

    why: str


def name_driver_on_node(node: Node, driver: str, info: CsiNodeInfo) -> Node | Unusable:
    """Return the Node with the node id of a driver, and with its topology as labels."""
    node_ids = _read_node_ids(node)
    if isinstance(node_ids, Unusable):
        return node_ids
    labels = dict(node.metadata.labels)
    for key, value in (info.topology or {}).items():
        if labels.get(key, value) != value:
            return Unusable(
                f"detected topology value collision: driver reported {quoted(key)}:{quoted(value)} but existing label "
                f"is {quoted(key)}:{quoted(labels[key])}"
            )
        labels[key] = value
    annotations = dict(node.metadata.annotations)
    if node_ids.get(driver) != info.node_id:
        annotations[NODE_ID_ANNOTATION] = _write_node_ids({**node_ids, driver: info.node_id})
    metadata = replace(node.metadata, labels=labels, annotations=annotations)
    return _without_legacy_limit(replace(node, metadata=metadata), driver)


def drop_driver_from_node(node: Node, driver: str) -> Node | Unusable:
    """Return the Node without the node id of a driver. Labels stay: volumes may still be bound to them."""
    node_ids = _read_node_ids(node)
    if isinstance(node_ids, Unusable):
        return node_ids
    annotations = dict(node.metadata.annotations)
    left = {name: node_id for name, node_id in node_ids.items() if name != driver}
    if not left:
        annotations.pop(NODE_ID_ANNOTATION, None)
    elif driver in node_ids:
        annotations[NODE_ID_ANNOTATION] = _write_node_ids(left)
    return _without_legacy_limit(replace(node, metadata=replace(node.metadata, annotations=annotations)), driver)


def build_node_patch(old: Node, new: Node) -> Json:
    """Return what to send to the status subresource: only the entries that differ, so that others' stay."""
    metadata = {
        "labels": _diff_entries(old.metadata.labels, new.metadata.labels),
        "annotations": _diff_entries(old.metadata.annotations, new.metadata.annotations),
    }
    status = {
        "capacity": _diff_entries(old.status.capacity, new.status.capacity),
        "allocatable": _diff_entries(old.status.allocatable, new.status.allocatable),
    }
    parts = {"metadata": metadata, "status": status}
    found = {name: {field: value for field, value in part.items() if value} for name, part in parts.items()}
    return {name: part for name, part in found.items() if part}


def build_csi_node(name: str, uid: str) -> CSINode:
    """Return the object of a node that has no driver yet."""
    owner = OwnerReference(api_version="v1", kind="Node", name=name, uid=uid)
    return CSINode(
        metadata=ObjectMeta(name=name, owner_references=(owner,), annotations={MIGRATED_ANNOTATION: MIGRATED_PLUGINS})
    )


def is_owned_by(csi_node: CSINode, name: str, uid: str) -> bool:
    """Return whether the object belongs to this Node, and not to an older one of the same name."""
    return any(
        (owner.kind, owner.name, owner.uid) == ("Node", name, uid) for owner in csi_node.metadata.owner_references
    )


def mark_migrated(csi_node: CSINode) -> CSINode:
    """Return the object with the in-tree plugins whose volumes CSI drivers serve."""
    annotations = {**csi_node.metadata.annotations, MIGRATED_ANNOTATION: MIGRATED_PLUGINS}
    return replace(csi_node, metadata=replace(csi_node.metadata, annotations=annotations))


def put_driver(csi_node: CSINode, driver: str, info: CsiNodeInfo) -> CSINode:
    """Return the object with the entry of a driver: the same object if it says so already."""
    wanted = CSINodeDriver(
        name=driver,
        node_id=info.node_id,
        topology_keys=tuple(sorted(info.topology or ())),
        allocatable=count_volumes(info),
    )
    marked = mark_migrated(csi_node)
    if any(_says_the_same(each, wanted) for each in csi_node.spec.drivers):
        return marked if marked != csi_node else csi_node
    others = tuple(each for each in csi_node.spec.drivers if each.name != driver)
    return replace(marked, spec=replace(marked.spec, drivers=(*others, wanted)))


def drop_driver(csi_node: CSINode, driver: str) -> CSINode:
    """Return the object without the entry of a driver."""
    others = tuple(each for each in csi_node.spec.drivers if each.name != driver)
    return replace(csi_node, spec=replace(csi_node.spec, drivers=others))


def set_volume_count(csi_node: CSINode, driver: str, info: CsiNodeInfo) -> CSINode:
    """Return the object with how many volumes of a driver the node can have now; an entry is changed, never added."""
    count = count_volumes(info)
    drivers = tuple(replace(each, allocatable=count) if each.name == driver else each for each in csi_node.spec.drivers)
    return replace(csi_node, spec=replace(csi_node.spec, drivers=drivers))


def build_csi_node_patch(old: CSINode, new: CSINode) -> Json:
    """Return what to send, for the version that was read alone; nothing if nothing has changed."""
    patch = create_strategic_patch(old, new, CSINode)
    if patch:
        patch["metadata"] = {**patch.get("metadata", {}), "resourceVersion": old.metadata.resource_version}
    return patch


def count_volumes(info: CsiNodeInfo) -> VolumeNodeResources | None:
    """Return how many volumes of a driver the node can have; None if it does not say."""
    return VolumeNodeResources(count=min(info.max_volumes, MOST_VOLUMES)) if info.max_volumes > 0 else None


def _diff_entries(old: Mapping[str, object], new: Mapping[str, object]) -> Json:
    """Return the entries that differ; None removes one."""
    return {
        **{name: value for name, value in new.items() if name not in old or old[name] != value},
        **{name: None for name in old if name not in new},
    }


def _says_the_same(one: CSINodeDriver, other: CSINodeDriver) -> bool:
    return (one.name, one.node_id, set(one.topology_keys), one.allocatable) == (
        other.name,
        other.node_id,
        set(other.topology_keys),
        other.allocatable,
    )


def _read_node_ids(node: Node) -> Mapping[str, str] | Unusable:
    text = node.metadata.annotations.get(NODE_ID_ANNOTATION, "")
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Unusable(f"failed to parse node's {quoted(NODE_ID_ANNOTATION)} annotation value: {error}")


def _write_node_ids(node_ids: Mapping[str, str]) -> str:
    return encode(dict(sorted(node_ids.items()))).decode()


def _without_legacy_limit(node: Node, driver: str) -> Node:
    """Drop the volume limit that kubelets before CSINode kept among the node's resources."""
    legacy = f"{_LEGACY_LIMIT}{driver}"
    status = node.status
    if legacy not in status.capacity and legacy not in status.allocatable:
        return node
    capacity = {name: amount for name, amount in status.capacity.items() if name != legacy}
    allocatable = {name: amount for name, amount in status.allocatable.items() if name != legacy}
    return replace(node, status=replace(status, capacity=capacity, allocatable=allocatable))
