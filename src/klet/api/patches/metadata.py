"""Which lists a strategic merge patch merges instead of replacing, and by what key.

Upstream keeps this in the `patchStrategy` and `patchMergeKey` tags of its Go structs.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from klet.api.base import ApiObject
from klet.api.certificates import PodCertificateRequestStatus
from klet.api.claim import PersistentVolumeClaimStatus
from klet.api.config import ServiceAccount
from klet.api.container import Container, EphemeralContainer
from klet.api.container_status import ContainerStatus
from klet.api.meta import ObjectMeta
from klet.api.namespace import NamespaceStatus
from klet.api.node import NodeSpec, NodeStatus
from klet.api.pod import PodSpec, PodStatus
from klet.api.resource import ResourceClaimStatus
from klet.api.service import ServiceSpec, ServiceStatus
from klet.api.storage import CSINodeSpec


class MergeList(Struct, frozen=True):
    """A list whose elements are merged: by a key, or as a set of plain values if there is none."""

    key: str = ""
    retain_keys: bool = False


def merge_list(struct: type[ApiObject], field: str) -> MergeList | None:
    """Return how the list in a field merges; None if it is replaced as a whole."""
    return _MERGE_LISTS.get(struct, {}).get(field)


_SET: Final = MergeList()
_BY_NAME: Final = MergeList("name")
_BY_TYPE: Final = MergeList("type")
_BY_IP: Final = MergeList("ip")
_BY_UID: Final = MergeList("uid")
_UNION_BY_NAME: Final = MergeList("name", retain_keys=True)

_OF_CONTAINERS: Final = {
    "env": _BY_NAME,
    "ports": MergeList("containerPort"),
    "volumeDevices": MergeList("devicePath"),
    "volumeMounts": MergeList("mountPath"),
}
_MERGE_LISTS: Final[Mapping[type[ApiObject], Mapping[str, MergeList]]] = {
    ObjectMeta: {"finalizers": _SET, "ownerReferences": _BY_UID},
    Container: _OF_CONTAINERS,
    EphemeralContainer: _OF_CONTAINERS,
    ContainerStatus: {"allocatedResourcesStatus": _BY_NAME, "volumeMounts": MergeList("mountPath")},
    PodSpec: {
        "containers": _BY_NAME,
        "ephemeralContainers": _BY_NAME,
        "hostAliases": _BY_IP,
        "imagePullSecrets": _BY_NAME,
        "initContainers": _BY_NAME,
        "resourceClaims": _UNION_BY_NAME,
        "schedulingGates": _BY_NAME,
        "topologySpreadConstraints": MergeList("topologyKey"),
        "volumes": _UNION_BY_NAME,
    },
    PodStatus: {
        "conditions": _BY_TYPE,
        "hostIPs": _BY_IP,
        "podIPs": _BY_IP,
        "resourceClaimStatuses": _UNION_BY_NAME,
    },
    NodeSpec: {"podCIDRs": _SET},
    NodeStatus: {"addresses": _BY_TYPE, "conditions": _BY_TYPE},
    NamespaceStatus: {"conditions": _BY_TYPE},
    PersistentVolumeClaimStatus: {"conditions": _BY_TYPE},
    ServiceAccount: {"secrets": _BY_NAME},
    ServiceSpec: {"ports": MergeList("port")},
    ServiceStatus: {"conditions": _BY_TYPE},
    ResourceClaimStatus: {"reservedFor": _BY_UID},
    CSINodeSpec: {"drivers": _BY_NAME},
    PodCertificateRequestStatus: {"conditions": _BY_TYPE},
}
