"""Pods: spec, status, and the bodies of their binding and eviction subresources (core/v1, policy/v1)."""

from collections.abc import Mapping

from msgspec import field

from klet.api.base import ApiObject, Int32, Int64, required
from klet.api.container import Container, EphemeralContainer, ResourceRequirements
from klet.api.container_status import ContainerStatus
from klet.api.meta import DeleteOptions, ListMeta, ObjectMeta
from klet.api.placement import Affinity, Toleration, TopologySpreadConstraint
from klet.api.quantity import Quantity
from klet.api.references import LocalObjectReference, ObjectReference
from klet.api.security import PodSecurityContext
from klet.api.times import Time
from klet.api.volume import Volume


class PodOS(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)


class PodReadinessGate(ApiObject, frozen=True, kw_only=True):
    condition_type: str = required(str)


class PodSchedulingGate(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)


class PodDNSConfigOption(ApiObject, frozen=True, kw_only=True):
    name: str = ""
    value: str | None = None


class PodDNSConfig(ApiObject, frozen=True, kw_only=True):
    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[PodDNSConfigOption, ...] = ()


class HostAlias(ApiObject, frozen=True, kw_only=True):
    ip: str = required(str)
    hostnames: tuple[str, ...] = ()


class PodResourceClaim(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class WorkloadReference(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)
    pod_group: str = required(str)
    pod_group_replica_key: str = ""


class PodSpec(ApiObject, frozen=True, kw_only=True):
    """The pod as wanted."""

    volumes: tuple[Volume, ...] = ()
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = required(tuple)
    ephemeral_containers: tuple[EphemeralContainer, ...] = ()
    restart_policy: str = ""
    termination_grace_period_seconds: Int64 | None = None
    active_deadline_seconds: Int64 | None = None
    dns_policy: str = ""
    node_selector: Mapping[str, str] = {}
    service_account_name: str = ""
    service_account: str = ""
    automount_service_account_token: bool | None = None
    node_name: str = ""
    host_network: bool = False
    host_pid: bool = field(name="hostPID", default=False)
    host_ipc: bool = field(name="hostIPC", default=False)
    share_process_namespace: bool | None = None
    security_context: PodSecurityContext | None = None
    image_pull_secrets: tuple[LocalObjectReference, ...] = ()
    hostname: str = ""
    subdomain: str = ""
    affinity: Affinity | None = None
    scheduler_name: str = ""
    tolerations: tuple[Toleration, ...] = ()
    host_aliases: tuple[HostAlias, ...] = ()
    priority_class_name: str = ""
    priority: Int32 | None = None
    dns_config: PodDNSConfig | None = None
    readiness_gates: tuple[PodReadinessGate, ...] = ()
    runtime_class_name: str | None = None
    enable_service_links: bool | None = None
    preemption_policy: str | None = None
    overhead: Mapping[str, Quantity] = {}
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    set_hostname_as_fqdn: bool | None = field(name="setHostnameAsFQDN", default=None)
    os: PodOS | None = None
    host_users: bool | None = None
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    resources: ResourceRequirements | None = None
    hostname_override: str | None = None
    workload_ref: WorkloadReference | None = None


class PodCondition(ApiObject, frozen=True, kw_only=True):
    """One observation about a pod."""

    type: str = required(str)
    observed_generation: Int64 = 0
    status: str = required(str)
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class PodIP(ApiObject, frozen=True, kw_only=True):
    ip: str = required(str)


class HostIP(ApiObject, frozen=True, kw_only=True):
    ip: str = required(str)


class PodResourceClaimStatus(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(ApiObject, frozen=True, kw_only=True):
    container_name: str = required(str)
    resource_name: str = required(str)
    request_name: str = required(str)


class PodExtendedResourceClaimStatus(ApiObject, frozen=True, kw_only=True):
    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = required(tuple)
    resource_claim_name: str = required(str)


class PodStatus(ApiObject, frozen=True, kw_only=True):
    """The pod as observed, written by the kubelet."""

    observed_generation: Int64 = 0
    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    message: str = ""
    reason: str = ""
    nominated_node_name: str = ""
    host_ip: str = field(name="hostIP", default="")
    host_ips: tuple[HostIP, ...] = field(name="hostIPs", default=())
    pod_ip: str = field(name="podIP", default="")
    pod_ips: tuple[PodIP, ...] = field(name="podIPs", default=())
    start_time: Time | None = None
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    qos_class: str = ""
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()
    resize: str = ""
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    allocated_resources: Mapping[str, Quantity] = {}
    resources: ResourceRequirements | None = None


class Pod(ApiObject, frozen=True, kw_only=True):
    """A group of containers that share a node, a network and volumes."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodList(ApiObject, frozen=True, kw_only=True):
    """Pods as the API server and the kubelet list them."""

    api_version: str = ""
    kind: str = ""
    metadata: ListMeta = ListMeta()
    items: tuple[Pod, ...] = required(tuple)


class Binding(ApiObject, frozen=True, kw_only=True):
    """Puts a pod on a node."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    target: ObjectReference = ObjectReference()


class Eviction(ApiObject, frozen=True, kw_only=True):
    """Asks that a pod be deleted with regard to disruption budgets."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    delete_options: DeleteOptions | None = None
