"""What every object carries (meta/v1): object and list metadata, conditions, selectors, delete options, Status."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from klet.api.base import ApiObject, Int32, Int64, JsonObject, json_null, required
from klet.api.times import Time

T = TypeVar("T", bound=ApiObject)


class OwnerReference(ApiObject, frozen=True, kw_only=True):
    """The object that this one belongs to and dies with."""

    api_version: str = required(str)
    kind: str = required(str)
    name: str = required(str)
    uid: str = required(str)
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ManagedFieldsEntry(ApiObject, frozen=True, kw_only=True):
    """Which fields one writer owns, for server-side apply."""

    manager: str = ""
    operation: str = ""
    api_version: str = ""
    time: Time | None = None
    fields_type: str = ""
    fields_v1: JsonObject | None = None
    subresource: str = ""


class ObjectMeta(ApiObject, frozen=True, kw_only=True):
    """Name, labels, owners and bookkeeping of one object."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    self_link: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    managed_fields: tuple[ManagedFieldsEntry, ...] = ()


class ListMeta(ApiObject, frozen=True, kw_only=True):
    """Resource version and continuation of a list."""

    self_link: str = ""
    resource_version: str = ""
    continue_: str = ""
    remaining_item_count: Int64 | None = None


class ObjectList(ApiObject, Generic[T], frozen=True, kw_only=True):
    """A list of objects of one kind, such as `ObjectList[Secret]`."""

    api_version: str = ""
    kind: str = ""
    metadata: ListMeta = ListMeta()
    items: tuple[T, ...] = required(tuple)


class Condition(ApiObject, frozen=True, kw_only=True):
    """One observation about an object, in the form newer kinds use."""

    type: str = required(str)
    status: str = required(str)
    observed_generation: Int64 = 0
    last_transition_time: Time | None = None
    reason: str = required(str)
    message: str = required(str)


class LabelSelectorRequirement(ApiObject, frozen=True, kw_only=True):
    key: str = required(str)
    operator: str = required(str)
    values: tuple[str, ...] = ()


class LabelSelector(ApiObject, frozen=True, kw_only=True):
    """Labels an object must have; None selects nothing, an empty one everything."""

    match_labels: Mapping[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class FieldSelectorRequirement(ApiObject, frozen=True, kw_only=True):
    key: str = required(str)
    operator: str = required(str)
    values: tuple[str, ...] = ()


class Preconditions(ApiObject, frozen=True, kw_only=True):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(ApiObject, frozen=True, kw_only=True):
    """How to delete: grace period, preconditions, propagation."""

    api_version: str = ""
    kind: str = ""
    grace_period_seconds: Int64 | None = None
    preconditions: Preconditions | None = None
    orphan_dependents: bool | None = None
    propagation_policy: str | None = None
    dry_run: tuple[str, ...] = ()
    ignore_store_read_error_with_cluster_breaking_potential: bool | None = None


class StatusCause(ApiObject, frozen=True, kw_only=True):
    """One field and what is wrong with it."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(ApiObject, frozen=True, kw_only=True):
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: Int32 = 0


class Status(ApiObject, frozen=True, kw_only=True):
    """The answer of an API server that is not an object: an error, or a plain success."""

    api_version: str = ""
    kind: str = ""
    metadata: ListMeta = ListMeta()
    status: str = ""
    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None
    code: Int32 = 0


class WatchEventType(StrEnum):
    """What happened to a watched object; bookmarks and errors are events of their own."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class WatchEvent(ApiObject, frozen=True, kw_only=True):
    """One line of a watch; the object stays raw until its kind is known."""

    type: str = required(str)
    object: msgspec.Raw = required(json_null)


def metadata_of(obj: ApiObject) -> ObjectMeta:
    """Return the metadata of a stored object."""
    found = getattr(obj, "metadata", None)
    if not isinstance(found, ObjectMeta):
        message = f"{type(obj).__name__} is not a stored object: it has no metadata"
        raise TypeError(message)
    return found
