"""Nodes (core/v1) and runtime classes (node.k8s.io/v1)."""

from collections.abc import Mapping

from msgspec import field

from klet.api.base import ApiObject, Int32, Int64, required
from klet.api.meta import ListMeta, ObjectMeta
from klet.api.placement import Taint, Toleration
from klet.api.quantity import Quantity
from klet.api.times import Time

OS_LABEL = "kubernetes.io/os"
LINUX = "linux"
"""The only operating system of klet's nodes, as labels and specs name it."""


class ConfigMapNodeConfigSource(ApiObject, frozen=True, kw_only=True):
    namespace: str = required(str)
    name: str = required(str)
    uid: str = ""
    resource_version: str = ""
    kubelet_config_key: str = required(str)


class NodeConfigSource(ApiObject, frozen=True, kw_only=True):
    config_map: ConfigMapNodeConfigSource | None = None


class NodeConfigStatus(ApiObject, frozen=True, kw_only=True):
    assigned: NodeConfigSource | None = None
    active: NodeConfigSource | None = None
    last_known_good: NodeConfigSource | None = None
    error: str = ""


class NodeSpec(ApiObject, frozen=True, kw_only=True):
    pod_cidr: str = field(name="podCIDR", default="")
    pod_cidrs: tuple[str, ...] = field(name="podCIDRs", default=())
    provider_id: str = field(name="providerID", default="")
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    config_source: NodeConfigSource | None = None
    external_id: str = field(name="externalID", default="")


class NodeCondition(ApiObject, frozen=True, kw_only=True):
    """One observation about a node."""

    type: str = required(str)
    status: str = required(str)
    last_heartbeat_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class NodeAddress(ApiObject, frozen=True, kw_only=True):
    type: str = required(str)
    address: str = required(str)


class DaemonEndpoint(ApiObject, frozen=True, kw_only=True):
    port: Int32 = required(int, name="Port")


class NodeDaemonEndpoints(ApiObject, frozen=True, kw_only=True):
    kubelet_endpoint: DaemonEndpoint = DaemonEndpoint()


class NodeSwapStatus(ApiObject, frozen=True, kw_only=True):
    capacity: Int64 | None = None


class NodeSystemInfo(ApiObject, frozen=True, kw_only=True):
    """Identity and versions of the machine."""

    machine_id: str = required(str, name="machineID")
    system_uuid: str = required(str, name="systemUUID")
    boot_id: str = required(str, name="bootID")
    kernel_version: str = required(str)
    os_image: str = required(str)
    container_runtime_version: str = required(str)
    kubelet_version: str = required(str)
    kube_proxy_version: str = required(str)
    operating_system: str = required(str)
    architecture: str = required(str)
    swap: NodeSwapStatus | None = None


class ContainerImage(ApiObject, frozen=True, kw_only=True):
    names: tuple[str, ...] = ()
    size_bytes: Int64 = 0


class AttachedVolume(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)
    device_path: str = required(str)


class NodeRuntimeHandlerFeatures(ApiObject, frozen=True, kw_only=True):
    recursive_read_only_mounts: bool | None = None
    user_namespaces: bool | None = None


class NodeRuntimeHandler(ApiObject, frozen=True, kw_only=True):
    name: str = ""
    features: NodeRuntimeHandlerFeatures | None = None


class NodeFeatures(ApiObject, frozen=True, kw_only=True):
    supplemental_groups_policy: bool | None = None


class NodeStatus(ApiObject, frozen=True, kw_only=True):
    """The node as observed, written by the kubelet."""

    capacity: Mapping[str, Quantity] = {}
    allocatable: Mapping[str, Quantity] = {}
    phase: str = ""
    conditions: tuple[NodeCondition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    daemon_endpoints: NodeDaemonEndpoints = NodeDaemonEndpoints()
    node_info: NodeSystemInfo = NodeSystemInfo()
    images: tuple[ContainerImage, ...] = ()
    volumes_in_use: tuple[str, ...] = ()
    volumes_attached: tuple[AttachedVolume, ...] = ()
    config: NodeConfigStatus | None = None
    runtime_handlers: tuple[NodeRuntimeHandler, ...] = ()
    features: NodeFeatures | None = None
    declared_features: tuple[str, ...] = ()


class Node(ApiObject, frozen=True, kw_only=True):
    """The machine that the kubelet runs on."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NodeList(ApiObject, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    metadata: ListMeta = ListMeta()
    items: tuple[Node, ...] = required(tuple)


class Overhead(ApiObject, frozen=True, kw_only=True):
    pod_fixed: Mapping[str, Quantity] = {}


class Scheduling(ApiObject, frozen=True, kw_only=True):
    node_selector: Mapping[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(ApiObject, frozen=True, kw_only=True):
    """A configuration of the container runtime that pods can ask for."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    handler: str = required(str)
    overhead: Overhead | None = None
    scheduling: Scheduling | None = None
