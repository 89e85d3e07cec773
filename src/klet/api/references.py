"""References from one object to another (core/v1)."""

from klet.api.base import ApiObject, required


class ObjectReference(ApiObject, frozen=True, kw_only=True):
    """Enough to find another object."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""


class LocalObjectReference(ApiObject, frozen=True, kw_only=True):
    name: str = ""


class TypedLocalObjectReference(ApiObject, frozen=True, kw_only=True):
    api_group: str | None = None
    kind: str = required(str)
    name: str = required(str)


class TypedObjectReference(ApiObject, frozen=True, kw_only=True):
    api_group: str | None = None
    kind: str = required(str)
    name: str = required(str)
    namespace: str | None = None


class SecretReference(ApiObject, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
