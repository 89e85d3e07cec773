"""Rules for claims inside a pod: resource claims, and the claim template of an ephemeral volume."""

from typing import Final

from klet.api.claim import PersistentVolumeClaimSpec, PersistentVolumeClaimTemplate
from klet.api.meta import ObjectMeta
from klet.api.pod import PodResourceClaim
from klet.api.references import TypedLocalObjectReference, TypedObjectReference
from klet.api.validation import formats
from klet.api.validation.errors import (
    FieldErrors,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    required,
)
from klet.api.validation.fieldpath import FieldPath
from klet.api.validation.metadata import validate_annotations, validate_label_selector, validate_labels
from klet.api.validation.resources import validate_quantity_value

_ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES: Final = ("Block", "Filesystem")


def validate_resource_claims(claims: tuple[PodResourceClaim, ...], path: FieldPath) -> FieldErrors:
    seen: set[str] = set()
    for position, claim in enumerate(claims):
        here = path.at(position)
        if not claim.name:
            yield required(here.child("name"))
        elif claim.name in seen:
            yield duplicate(here.child("name"), claim.name)
        else:
            yield from invalid_each(here.child("name"), claim.name, formats.dns_label(claim.name))
            seen.add(claim.name)
        direct, template = claim.resource_claim_name, claim.resource_claim_template_name
        if direct is not None and template is not None:
            message = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            yield invalid(here, claim, message)
        if direct is None and template is None:
            message = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            yield invalid(here, claim, message)
        for wire_name, name in (("resourceClaimName", direct), ("resourceClaimTemplateName", template)):
            if name is not None:
                yield from invalid_each(here.child(wire_name), name, formats.dns_subdomain(name))


def validate_claim_template(template: PersistentVolumeClaimTemplate, path: FieldPath) -> FieldErrors:
    yield from _template_metadata(template.metadata, path.child("metadata"))
    yield from _claim_spec(template.spec, path.child("spec"))


def _template_metadata(meta: ObjectMeta, path: FieldPath) -> FieldErrors:
    yield from validate_annotations(meta.annotations, path.child("annotations"))
    yield from validate_labels(meta.labels, path.child("labels"))
    for wire_name, value in (
        ("name", meta.name),
        ("generateName", meta.generate_name),
        ("namespace", meta.namespace),
        ("selfLink", meta.self_link),
        ("uID", meta.uid),
        ("resourceVersion", meta.resource_version),
        ("generation", meta.generation),
        ("creationTimestamp", meta.creation_timestamp),
        ("deletionTimestamp", meta.deletion_timestamp),
        ("deletionGracePeriodSeconds", meta.deletion_grace_period_seconds),
        ("ownerReferences", meta.owner_references),
        ("finalizers", meta.finalizers),
        ("managedFields", meta.managed_fields),
    ):
        if value not in (None, "", 0, ()):
            yield forbidden(path.child(wire_name), "cannot be set")


def _claim_spec(spec: PersistentVolumeClaimSpec, path: FieldPath) -> FieldErrors:
    if not spec.access_modes:
        yield required(path.child("accessModes"), "at least 1 access mode is required")
    yield from validate_label_selector(spec.selector, path.child("selector"))
    yield from _access_modes(spec.access_modes, path.child("accessModes"))
    yield from _storage(spec, path.child("resources").key("storage"))
    yield from _class_name(spec.storage_class_name, path.child("storageClassName"))
    if spec.volume_mode is not None and spec.volume_mode not in _VOLUME_MODES:
        yield not_supported(path.child("volumeMode"), spec.volume_mode, _VOLUME_MODES)
    yield from _data_sources(spec, path)
    yield from _class_name(spec.volume_attributes_class_name, path.child("volumeAttributesClassName"))


def _access_modes(modes: tuple[str, ...], path: FieldPath) -> FieldErrors:
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield not_supported(path, mode, _ACCESS_MODES)
    known = {mode for mode in modes if mode in _ACCESS_MODES}
    if "ReadWriteOncePod" in known and len(known) > 1:
        yield forbidden(path, "may not use ReadWriteOncePod with other access modes")


def _storage(spec: PersistentVolumeClaimSpec, path: FieldPath) -> FieldErrors:
    size = spec.resources.requests.get("storage")
    if size is None:
        yield required(path)
    elif size.sign <= 0:
        yield invalid(path, str(size), "must be greater than zero")
    else:
        yield from validate_quantity_value("storage", size, path)


def _class_name(name: str | None, path: FieldPath) -> FieldErrors:
    if name:
        yield from invalid_each(path, name, formats.dns_subdomain(name))


def _data_sources(spec: PersistentVolumeClaimSpec, path: FieldPath) -> FieldErrors:
    source, reference = spec.data_source, spec.data_source_ref
    if source is not None:
        yield from _data_source(source, path.child("dataSource"))
    if reference is not None:
        yield from _data_source(reference, path.child("dataSourceRef"))
    if source is None or reference is None:
        return
    if reference.namespace:
        message = "may not be specified when dataSourceRef.namespace is specified"
        yield invalid(path, path.child("dataSource"), message)
    elif (source.api_group, source.kind, source.name) != (reference.api_group, reference.kind, reference.name):
        yield invalid(path, path.child("dataSource"), "must match dataSourceRef")


def _data_source(source: TypedLocalObjectReference | TypedObjectReference, path: FieldPath) -> FieldErrors:
    if not source.name:
        yield required(path.child("name"))
    if not source.kind:
        yield required(path.child("kind"))
    if not source.api_group:
        if source.kind != "PersistentVolumeClaim":
            yield invalid(path, source.kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
    else:
        yield from invalid_each(path.child("apiGroup"), source.api_group, formats.dns_subdomain(source.api_group))
    if isinstance(source, TypedObjectReference) and source.namespace:
        yield from invalid_each(path.child("namespace"), source.namespace, formats.dns_label(source.namespace))
