"""The kinds that can be asked of an API server: group version, name, path segment, scope and struct."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from klet.api.base import ApiObject
from klet.api.certificates import CertificateSigningRequest, ClusterTrustBundle, PodCertificateRequest
from klet.api.claim import PersistentVolumeClaim
from klet.api.config import ConfigMap, Secret, ServiceAccount
from klet.api.coordination import Lease
from klet.api.discovery import EndpointSlice
from klet.api.event import Event
from klet.api.events_v1 import Event as EventsV1Event
from klet.api.namespace import LimitRange, Namespace, ResourceQuota
from klet.api.node import Node, RuntimeClass
from klet.api.placement import PriorityClass
from klet.api.pod import Pod
from klet.api.rbac import ClusterRole, ClusterRoleBinding, Role, RoleBinding
from klet.api.resource import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from klet.api.service import Endpoints, Service
from klet.api.storage import CSIDriver, CSINode, PersistentVolume, StorageClass, VolumeAttachment


class Scope(StrEnum):
    """Whether names are unique within a namespace or in the whole cluster."""

    NAMESPACED = "Namespaced"
    CLUSTER = "Cluster"


class Kind(Struct, frozen=True):
    """One kind of stored object."""

    api_version: str
    name: str
    plural: str
    scope: Scope
    struct: type[ApiObject]

    @property
    def namespaced(self) -> bool:
        return self.scope is Scope.NAMESPACED

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    def path(self, namespace: str = "", name: str = "") -> str:
        """Return the URL path of the collection, or of one object."""
        segments = ["/apis" if self.group else "/api", self.api_version]
        if self.namespaced and namespace:
            segments += ["namespaces", namespace]
        return "/".join([*segments, self.plural, *([name] if name else [])])


def find_kind(api_version: str, name: str) -> Kind | None:
    return _BY_NAME.get((api_version, name))


def kind_of(struct: type[ApiObject]) -> Kind:
    """Return the kind that a struct holds, in the version klet prefers."""
    return _BY_STRUCT[struct]


NAMESPACED: Final = Scope.NAMESPACED
CLUSTER: Final = Scope.CLUSTER
_CERTIFICATES: Final = "certificates.k8s.io/"
_RBAC: Final = "rbac.authorization.k8s.io/v1"
_RESOURCE: Final = "resource.k8s.io/v1"
_STORAGE: Final = "storage.k8s.io/v1"

KINDS: Final = (
    Kind("v1", "Pod", "pods", NAMESPACED, Pod),
    Kind("v1", "Node", "nodes", CLUSTER, Node),
    Kind("v1", "ConfigMap", "configmaps", NAMESPACED, ConfigMap),
    Kind("v1", "Secret", "secrets", NAMESPACED, Secret),
    Kind("v1", "ServiceAccount", "serviceaccounts", NAMESPACED, ServiceAccount),
    Kind("v1", "Namespace", "namespaces", CLUSTER, Namespace),
    Kind("v1", "Service", "services", NAMESPACED, Service),
    Kind("v1", "Endpoints", "endpoints", NAMESPACED, Endpoints),
    Kind("v1", "Event", "events", NAMESPACED, Event),
    Kind("v1", "LimitRange", "limitranges", NAMESPACED, LimitRange),
    Kind("v1", "ResourceQuota", "resourcequotas", NAMESPACED, ResourceQuota),
    Kind("v1", "PersistentVolume", "persistentvolumes", CLUSTER, PersistentVolume),
    Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims", NAMESPACED, PersistentVolumeClaim),
    Kind("coordination.k8s.io/v1", "Lease", "leases", NAMESPACED, Lease),
    Kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", NAMESPACED, EndpointSlice),
    Kind("events.k8s.io/v1", "Event", "events", NAMESPACED, EventsV1Event),
    Kind("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", CLUSTER, RuntimeClass),
    Kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", CLUSTER, PriorityClass),
    Kind(_STORAGE, "CSIDriver", "csidrivers", CLUSTER, CSIDriver),
    Kind(_STORAGE, "CSINode", "csinodes", CLUSTER, CSINode),
    Kind(_STORAGE, "StorageClass", "storageclasses", CLUSTER, StorageClass),
    Kind(_STORAGE, "VolumeAttachment", "volumeattachments", CLUSTER, VolumeAttachment),
    Kind(_RESOURCE, "DeviceClass", "deviceclasses", CLUSTER, DeviceClass),
    Kind(_RESOURCE, "ResourceClaim", "resourceclaims", NAMESPACED, ResourceClaim),
    Kind(_RESOURCE, "ResourceClaimTemplate", "resourceclaimtemplates", NAMESPACED, ResourceClaimTemplate),
    Kind(_RESOURCE, "ResourceSlice", "resourceslices", CLUSTER, ResourceSlice),
    Kind(_RBAC, "Role", "roles", NAMESPACED, Role),
    Kind(_RBAC, "RoleBinding", "rolebindings", NAMESPACED, RoleBinding),
    Kind(_RBAC, "ClusterRole", "clusterroles", CLUSTER, ClusterRole),
    Kind(_RBAC, "ClusterRoleBinding", "clusterrolebindings", CLUSTER, ClusterRoleBinding),
    Kind(
        f"{_CERTIFICATES}v1",
        "CertificateSigningRequest",
        "certificatesigningrequests",
        CLUSTER,
        CertificateSigningRequest,
    ),
    Kind(
        f"{_CERTIFICATES}v1beta1", "PodCertificateRequest", "podcertificaterequests", NAMESPACED, PodCertificateRequest
    ),
    Kind(f"{_CERTIFICATES}v1beta1", "ClusterTrustBundle", "clustertrustbundles", CLUSTER, ClusterTrustBundle),
    Kind(f"{_CERTIFICATES}v1alpha1", "ClusterTrustBundle", "clustertrustbundles", CLUSTER, ClusterTrustBundle),
)

_BY_NAME: Final[Mapping[tuple[str, str], Kind]] = {(kind.api_version, kind.name): kind for kind in KINDS}
# Reversed, so that the first and preferred version of a kind wins.
_BY_STRUCT: Final[Mapping[type[ApiObject], Kind]] = {kind.struct: kind for kind in reversed(KINDS)}
