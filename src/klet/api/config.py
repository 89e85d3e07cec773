"""Configuration that pods mount or read: config maps, secrets, service accounts (core/v1)."""

from collections.abc import Mapping

from klet.api.base import ApiObject
from klet.api.meta import ObjectMeta
from klet.api.references import LocalObjectReference, ObjectReference


class ConfigMap(ApiObject, frozen=True, kw_only=True):
    """Plain configuration."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    immutable: bool | None = None
    data: Mapping[str, str] = {}
    binary_data: Mapping[str, bytes] = {}


class Secret(ApiObject, frozen=True, kw_only=True):
    """Confidential configuration; values are decoded from base64."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    immutable: bool | None = None
    data: Mapping[str, bytes] = {}
    string_data: Mapping[str, str] = {}
    type: str = ""


class ServiceAccount(ApiObject, frozen=True, kw_only=True):
    """The identity of a pod."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    secrets: tuple[ObjectReference, ...] = ()
    image_pull_secrets: tuple[LocalObjectReference, ...] = ()
    automount_service_account_token: bool | None = None
