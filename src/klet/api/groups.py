"""The discovery documents of an API server (meta/v1): versions, groups and resources."""

from msgspec import field

from klet.api.base import ApiObject, required


class ServerAddressByClientCIDR(ApiObject, frozen=True, kw_only=True):
    client_cidr: str = required(str, name="clientCIDR")
    server_address: str = required(str)


class APIVersions(ApiObject, frozen=True, kw_only=True):
    """The versions of the core group."""

    api_version: str = ""
    kind: str = ""
    versions: tuple[str, ...] = required(tuple)
    server_address_by_client_cidrs: tuple[ServerAddressByClientCIDR, ...] = required(
        tuple, name="serverAddressByClientCIDRs"
    )


class GroupVersionForDiscovery(ApiObject, frozen=True, kw_only=True):
    group_version: str = required(str)
    version: str = required(str)


class APIGroup(ApiObject, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    name: str = required(str)
    versions: tuple[GroupVersionForDiscovery, ...] = required(tuple)
    preferred_version: GroupVersionForDiscovery = GroupVersionForDiscovery()
    server_address_by_client_cidrs: tuple[ServerAddressByClientCIDR, ...] = field(
        name="serverAddressByClientCIDRs", default=()
    )


class APIGroupList(ApiObject, frozen=True, kw_only=True):
    """The groups a server has."""

    api_version: str = ""
    kind: str = ""
    groups: tuple[APIGroup, ...] = required(tuple)


class APIResource(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)
    singular_name: str = required(str)
    namespaced: bool = required(bool)
    group: str = ""
    version: str = ""
    kind: str = required(str)
    verbs: tuple[str, ...] = required(tuple)
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    storage_version_hash: str = ""


class APIResourceList(ApiObject, frozen=True, kw_only=True):
    """The resources of one group and version."""

    api_version: str = ""
    kind: str = ""
    group_version: str = required(str)
    resources: tuple[APIResource, ...] = required(tuple)
