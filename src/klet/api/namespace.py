"""Namespaces and what limits the pods in them (core/v1)."""

from collections.abc import Mapping

from klet.api.base import ApiObject, required
from klet.api.meta import ObjectMeta
from klet.api.quantity import Quantity
from klet.api.times import Time


class NamespaceSpec(ApiObject, frozen=True, kw_only=True):
    finalizers: tuple[str, ...] = ()


class NamespaceCondition(ApiObject, frozen=True, kw_only=True):
    type: str = required(str)
    status: str = required(str)
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class NamespaceStatus(ApiObject, frozen=True, kw_only=True):
    phase: str = ""
    conditions: tuple[NamespaceCondition, ...] = ()


class Namespace(ApiObject, frozen=True, kw_only=True):
    """A scope for names."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


class LimitRangeItem(ApiObject, frozen=True, kw_only=True):
    type: str = required(str)
    max: Mapping[str, Quantity] = {}
    min: Mapping[str, Quantity] = {}
    default: Mapping[str, Quantity] = {}
    default_request: Mapping[str, Quantity] = {}
    max_limit_request_ratio: Mapping[str, Quantity] = {}


class LimitRangeSpec(ApiObject, frozen=True, kw_only=True):
    limits: tuple[LimitRangeItem, ...] = required(tuple)


class LimitRange(ApiObject, frozen=True, kw_only=True):
    """Bounds and defaults for the resources in a namespace."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


class ScopedResourceSelectorRequirement(ApiObject, frozen=True, kw_only=True):
    scope_name: str = required(str)
    operator: str = required(str)
    values: tuple[str, ...] = ()


class ScopeSelector(ApiObject, frozen=True, kw_only=True):
    match_expressions: tuple[ScopedResourceSelectorRequirement, ...] = ()


class ResourceQuotaSpec(ApiObject, frozen=True, kw_only=True):
    hard: Mapping[str, Quantity] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(ApiObject, frozen=True, kw_only=True):
    hard: Mapping[str, Quantity] = {}
    used: Mapping[str, Quantity] = {}


class ResourceQuota(ApiObject, frozen=True, kw_only=True):
    """A ceiling on what a namespace may hold."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()
