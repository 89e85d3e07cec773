"""Devices, claims and slices of dynamic resource allocation (resource.k8s.io/v1)."""

from collections.abc import Mapping

from msgspec import field

from klet.api.base import ApiObject, Int64, JsonObject, required
from klet.api.meta import Condition, ObjectMeta
from klet.api.placement import NodeSelector
from klet.api.quantity import Quantity
from klet.api.times import Time


class NetworkDeviceData(ApiObject, frozen=True, kw_only=True):
    interface_name: str = ""
    ips: tuple[str, ...] = ()
    hardware_address: str = ""


class AllocatedDeviceStatus(ApiObject, frozen=True, kw_only=True):
    driver: str = required(str)
    pool: str = required(str)
    device: str = required(str)
    share_id: str | None = field(name="shareID", default=None)
    conditions: tuple[Condition, ...] = ()
    data: JsonObject | None = None
    network_data: NetworkDeviceData | None = None


class OpaqueDeviceConfiguration(ApiObject, frozen=True, kw_only=True):
    driver: str = required(str)
    parameters: JsonObject = required(dict)


class DeviceAllocationConfiguration(ApiObject, frozen=True, kw_only=True):
    source: str = required(str)
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceToleration(ApiObject, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class DeviceRequestAllocationResult(ApiObject, frozen=True, kw_only=True):
    request: str = required(str)
    driver: str = required(str)
    pool: str = required(str)
    device: str = required(str)
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = field(name="shareID", default=None)
    consumed_capacity: Mapping[str, Quantity] = {}


class DeviceAllocationResult(ApiObject, frozen=True, kw_only=True):
    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(ApiObject, frozen=True, kw_only=True):
    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: Time | None = None


class CELDeviceSelector(ApiObject, frozen=True, kw_only=True):
    expression: str = required(str)


class CapacityRequestPolicyRange(ApiObject, frozen=True, kw_only=True):
    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(ApiObject, frozen=True, kw_only=True):
    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None


class CapacityRequirements(ApiObject, frozen=True, kw_only=True):
    requests: Mapping[str, Quantity] = {}


class Counter(ApiObject, frozen=True, kw_only=True):
    value: Quantity = required(Quantity)


class CounterSet(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)
    counters: Mapping[str, Counter] = required(dict)


class DeviceAttribute(ApiObject, frozen=True, kw_only=True):
    """Exactly one value is set."""

    int_value: Int64 | None = field(name="int", default=None)
    bool_value: bool | None = field(name="bool", default=None)
    string_value: str | None = field(name="string", default=None)
    version_value: str | None = field(name="version", default=None)


class DeviceCapacity(ApiObject, frozen=True, kw_only=True):
    value: Quantity = required(Quantity)
    request_policy: CapacityRequestPolicy | None = None


class DeviceCounterConsumption(ApiObject, frozen=True, kw_only=True):
    counter_set: str = required(str)
    counters: Mapping[str, Counter] = required(dict)


class DeviceTaint(ApiObject, frozen=True, kw_only=True):
    key: str = required(str)
    value: str = ""
    effect: str = required(str)
    time_added: Time | None = None


class Device(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)
    attributes: Mapping[str, DeviceAttribute] = {}
    capacity: Mapping[str, DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None


class DeviceClaimConfiguration(ApiObject, frozen=True, kw_only=True):
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceConstraint(ApiObject, frozen=True, kw_only=True):
    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceSelector(ApiObject, frozen=True, kw_only=True):
    cel: CELDeviceSelector | None = None


class DeviceSubRequest(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)
    device_class_name: str = required(str)
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class ExactDeviceRequest(ApiObject, frozen=True, kw_only=True):
    device_class_name: str = required(str)
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceRequest(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceClaim(ApiObject, frozen=True, kw_only=True):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class DeviceClassConfiguration(ApiObject, frozen=True, kw_only=True):
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(ApiObject, frozen=True, kw_only=True):
    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(ApiObject, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


class ResourceClaimSpec(ApiObject, frozen=True, kw_only=True):
    devices: DeviceClaim = DeviceClaim()


class ResourceClaimConsumerReference(ApiObject, frozen=True, kw_only=True):
    api_group: str = ""
    resource: str = required(str)
    name: str = required(str)
    uid: str = required(str)


class ResourceClaimStatus(ApiObject, frozen=True, kw_only=True):
    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(ApiObject, frozen=True, kw_only=True):
    """A request for devices and their allocation."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(ApiObject, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = required(ResourceClaimSpec)


class ResourceClaimTemplate(ApiObject, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class ResourcePool(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)
    generation: Int64 = required(int)
    resource_slice_count: Int64 = required(int)


class ResourceSliceSpec(ApiObject, frozen=True, kw_only=True):
    driver: str = required(str)
    pool: ResourcePool = required(ResourcePool)
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: tuple[Device, ...] = ()
    per_device_node_selection: bool | None = None
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(ApiObject, frozen=True, kw_only=True):
    """Devices that a driver offers on a node."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()
