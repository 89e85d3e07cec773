"""Persistent volume claims (core/v1)."""

from collections.abc import Mapping

from klet.api.base import ApiObject, required
from klet.api.meta import LabelSelector, ObjectMeta
from klet.api.quantity import Quantity
from klet.api.references import TypedLocalObjectReference, TypedObjectReference
from klet.api.times import Time


class VolumeResourceRequirements(ApiObject, frozen=True, kw_only=True):
    limits: Mapping[str, Quantity] = {}
    requests: Mapping[str, Quantity] = {}


class PersistentVolumeClaimSpec(ApiObject, frozen=True, kw_only=True):
    """The storage as wanted."""

    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: VolumeResourceRequirements = VolumeResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    data_source: TypedLocalObjectReference | None = None
    data_source_ref: TypedObjectReference | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimCondition(ApiObject, frozen=True, kw_only=True):
    type: str = required(str)
    status: str = required(str)
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class ModifyVolumeStatus(ApiObject, frozen=True, kw_only=True):
    target_volume_attributes_class_name: str = ""
    status: str = required(str)


class PersistentVolumeClaimStatus(ApiObject, frozen=True, kw_only=True):
    phase: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: Mapping[str, Quantity] = {}
    conditions: tuple[PersistentVolumeClaimCondition, ...] = ()
    allocated_resources: Mapping[str, Quantity] = {}
    allocated_resource_statuses: Mapping[str, str] = {}
    current_volume_attributes_class_name: str | None = None
    modify_volume_status: ModifyVolumeStatus | None = None


class PersistentVolumeClaim(ApiObject, frozen=True, kw_only=True):
    """A request for storage."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class PersistentVolumeClaimTemplate(ApiObject, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = required(PersistentVolumeClaimSpec)
