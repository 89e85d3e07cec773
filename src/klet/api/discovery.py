"""Endpoint slices (discovery.k8s.io/v1)."""

from collections.abc import Mapping

from klet.api.base import ApiObject, Int32, required
from klet.api.meta import ObjectMeta
from klet.api.references import ObjectReference


class EndpointConditions(ApiObject, frozen=True, kw_only=True):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class ForNode(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)


class ForZone(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)


class EndpointHints(ApiObject, frozen=True, kw_only=True):
    for_nodes: tuple[ForNode, ...] = ()
    for_zones: tuple[ForZone, ...] = ()


class Endpoint(ApiObject, frozen=True, kw_only=True):
    addresses: tuple[str, ...] = required(tuple)
    conditions: EndpointConditions = EndpointConditions()
    deprecated_topology: Mapping[str, str] = {}
    hints: EndpointHints | None = None
    hostname: str | None = None
    node_name: str | None = None
    target_ref: ObjectReference | None = None
    zone: str | None = None


class EndpointPort(ApiObject, frozen=True, kw_only=True):
    app_protocol: str | None = None
    name: str | None = None
    port: Int32 | None = None
    protocol: str | None = None


class EndpointSlice(ApiObject, frozen=True, kw_only=True):
    """Some of the addresses behind a service."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    address_type: str = required(str)
    endpoints: tuple[Endpoint, ...] = required(tuple)
    ports: tuple[EndpointPort, ...] = ()
