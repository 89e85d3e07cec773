"""Services and endpoints (core/v1)."""

from collections.abc import Mapping

from msgspec import field

from klet.api.base import ApiObject, Int32, IntOrString, required
from klet.api.meta import Condition, ListMeta, ObjectMeta
from klet.api.references import ObjectReference


class ServicePort(ApiObject, frozen=True, kw_only=True):
    name: str = ""
    protocol: str = ""
    app_protocol: str | None = None
    port: Int32 = required(int)
    target_port: IntOrString | None = None
    node_port: Int32 = 0


class ClientIPConfig(ApiObject, frozen=True, kw_only=True):
    timeout_seconds: Int32 | None = None


class SessionAffinityConfig(ApiObject, frozen=True, kw_only=True):
    client_ip: ClientIPConfig | None = field(name="clientIP", default=None)


class ServiceSpec(ApiObject, frozen=True, kw_only=True):
    ports: tuple[ServicePort, ...] = ()
    selector: Mapping[str, str] = {}
    cluster_ip: str = field(name="clusterIP", default="")
    cluster_ips: tuple[str, ...] = field(name="clusterIPs", default=())
    type: str = ""
    external_ips: tuple[str, ...] = field(name="externalIPs", default=())
    session_affinity: str = ""
    load_balancer_ip: str = field(name="loadBalancerIP", default="")
    load_balancer_source_ranges: tuple[str, ...] = ()
    external_name: str = ""
    external_traffic_policy: str = ""
    health_check_node_port: Int32 = 0
    publish_not_ready_addresses: bool = False
    session_affinity_config: SessionAffinityConfig | None = None
    ip_families: tuple[str, ...] = ()
    ip_family_policy: str | None = None
    allocate_load_balancer_node_ports: bool | None = None
    load_balancer_class: str | None = None
    internal_traffic_policy: str | None = None
    traffic_distribution: str | None = None


class PortStatus(ApiObject, frozen=True, kw_only=True):
    port: Int32 = required(int)
    protocol: str = required(str)
    error: str | None = None


class LoadBalancerIngress(ApiObject, frozen=True, kw_only=True):
    ip: str = ""
    hostname: str = ""
    ip_mode: str | None = None
    ports: tuple[PortStatus, ...] = ()


class LoadBalancerStatus(ApiObject, frozen=True, kw_only=True):
    ingress: tuple[LoadBalancerIngress, ...] = ()


class ServiceStatus(ApiObject, frozen=True, kw_only=True):
    load_balancer: LoadBalancerStatus = LoadBalancerStatus()
    conditions: tuple[Condition, ...] = ()


class Service(ApiObject, frozen=True, kw_only=True):
    """A stable address for a set of pods."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()


class ServiceList(ApiObject, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    metadata: ListMeta = ListMeta()
    items: tuple[Service, ...] = required(tuple)


class EndpointAddress(ApiObject, frozen=True, kw_only=True):
    ip: str = required(str)
    hostname: str = ""
    node_name: str | None = None
    target_ref: ObjectReference | None = None


class EndpointPort(ApiObject, frozen=True, kw_only=True):
    name: str = ""
    port: Int32 = required(int)
    protocol: str = ""
    app_protocol: str | None = None


class EndpointSubset(ApiObject, frozen=True, kw_only=True):
    addresses: tuple[EndpointAddress, ...] = ()
    not_ready_addresses: tuple[EndpointAddress, ...] = ()
    ports: tuple[EndpointPort, ...] = ()


class Endpoints(ApiObject, frozen=True, kw_only=True):
    """The addresses behind a service, in the older shape."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    subsets: tuple[EndpointSubset, ...] = ()
