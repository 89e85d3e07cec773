"""The settings of the node's own object, and what is reserved from pods."""

from collections.abc import Mapping
from datetime import timedelta

from msgspec import Struct, field

from klet.api.placement import Taint
from klet.api.quantity import ZERO, Format, Quantity
from klet.config.configuration import KubeletConfiguration
from klet.config.flags import KubeletFlags, parse_node_ips
from klet.config.reserved import effective_reservations
from klet.config.thresholds import Amount, Signal, parse_thresholds
from klet.host.addresses import IPAddress
from klet.model.pod_resources import EPHEMERAL_STORAGE, MEMORY

EXTERNAL_CLOUD = "external"

_RESOURCE_OF_SIGNAL: Mapping[Signal, str] = {
    Signal.MEMORY_AVAILABLE: MEMORY,
    Signal.NODEFS_AVAILABLE: EPHEMERAL_STORAGE,
}


class Reservations(Struct, frozen=True, kw_only=True):
    """What pods do not get: fixed amounts, and what must stay free, which may be a share of the capacity."""

    fixed: Mapping[str, Quantity] = field(default_factory=dict)
    kept_free: Mapping[str, Amount] = field(default_factory=dict)

    def of(self, resource: str, capacity: Quantity) -> Quantity:
        """Return what is kept back of a resource."""
        kept = self.kept_free.get(resource)
        fixed = self.fixed.get(resource, ZERO)
        return fixed if kept is None else fixed + _amount(kept, capacity)


class NodeSettings(Struct, frozen=True, kw_only=True):
    """What the node's object is made of besides the inputs of its status."""

    name: str
    architecture: str = "amd64"
    node_ips: tuple[IPAddress, ...] = ()
    has_external_cloud: bool = False
    """A cloud controller completes the node: addresses, provider id, and the taint that it removes."""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    provider_id: str = ""
    has_attach_controller: bool = True
    """Volumes are attached by a controller of the cluster."""
    port: int = 10250
    max_pods: int = 110
    pods_per_core: int = 0
    max_images: int = 50
    counts_storage: bool = True
    """Local storage is a resource (localStorageCapacityIsolation)."""
    reservations: Reservations = field(default_factory=Reservations)
    shows_proxy_version: bool = False
    """The Node names a version of kube-proxy, the agent's own (without the gate DisableNodeKubeProxyVersion)."""
    declared_features: tuple[str, ...] = ()
    """What the node can do that others of its cluster perhaps cannot."""


class ReportTimes(Struct, frozen=True, kw_only=True):
    """How often a status is computed, and how often it is sent when nothing has changed."""

    update: timedelta = timedelta(seconds=10)
    report: timedelta = timedelta(minutes=5)


def cut_node_settings(
    config: KubeletConfiguration,
    flags: KubeletFlags,
    *,
    name: str,
    architecture: str,
    shows_proxy_version: bool = False,
    declared_features: tuple[str, ...] = (),
) -> NodeSettings:
    """Choose what the node's object needs."""
    return NodeSettings(
        name=name,
        architecture=architecture,
        node_ips=parse_node_ips(flags.node_ip, cloud_provider=flags.cloud_provider),
        has_external_cloud=flags.cloud_provider == EXTERNAL_CLOUD,
        labels=flags.node_labels,
        taints=config.register_with_taints,
        provider_id=config.provider_id,
        has_attach_controller=config.enable_controller_attach_detach,
        port=config.port,
        max_pods=config.max_pods,
        pods_per_core=config.pods_per_core,
        max_images=config.node_status_max_images,
        counts_storage=config.local_storage_capacity_isolation,
        reservations=cut_reservations(config, ignore_eviction=flags.experimental_allocatable_ignore_eviction),
        shows_proxy_version=shows_proxy_version,
        declared_features=declared_features,
    )


def cut_reservations(config: KubeletConfiguration, *, ignore_eviction: bool = False) -> Reservations:
    """Return both reservations, and the hard eviction thresholds of memory and of the node's filesystem."""
    system, kube = effective_reservations(config)
    thresholds = () if ignore_eviction else parse_thresholds(config)
    return Reservations(
        fixed={name: system.get(name, ZERO) + kube.get(name, ZERO) for name in system.keys() | kube.keys()},
        kept_free={
            _RESOURCE_OF_SIGNAL[threshold.signal]: threshold.amount
            for threshold in thresholds
            if threshold.is_hard and threshold.signal in _RESOURCE_OF_SIGNAL
        },
    )


def _amount(amount: Amount, capacity: Quantity) -> Quantity:
    if amount.quantity is not None:
        return amount.quantity
    return Quantity.of(int(capacity.value() * amount.share), Format.BINARY_SI)
