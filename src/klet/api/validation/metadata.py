"""Rules for object metadata, labels, annotations and label selectors (upstream: apimachinery `ValidateObjectMeta`)."""

from collections.abc import Callable, Mapping
from typing import Final

from klet.api.meta import LabelSelector, LabelSelectorRequirement, ManagedFieldsEntry, ObjectMeta, OwnerReference
from klet.api.validation import formats
from klet.api.validation.errors import FieldErrors, forbidden, invalid, invalid_each, required, too_long
from klet.api.validation.fieldpath import FieldPath
from klet.api.validation.rendering import go_quote

ANNOTATIONS_LIMIT: Final = 262144
FIELD_MANAGER_LIMIT: Final = 128
SUBRESOURCE_LIMIT: Final = 256
IMMUTABLE: Final = "field is immutable"
NOT_NEGATIVE: Final = "must be greater than or equal to 0"

_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})

NameFormat = Callable[[str], formats.Messages]

_NAME_FORMATS: Final[Mapping[str, NameFormat]] = {
    "Namespace": formats.dns_label,
    "Service": formats.dns_1035_label,
    "Role": formats.path_segment_name,
    "RoleBinding": formats.path_segment_name,
    "ClusterRole": formats.path_segment_name,
    "ClusterRoleBinding": formats.path_segment_name,
    "CertificateSigningRequest": formats.path_segment_name,
}


def name_format_of(kind: str) -> NameFormat:
    """Return the rule for names of a kind; nearly all are DNS subdomains."""
    return _NAME_FORMATS.get(kind, formats.dns_subdomain)


def validate_object_meta(
    meta: ObjectMeta, path: FieldPath, *, name_format: NameFormat = formats.dns_subdomain, namespaced: bool = True
) -> FieldErrors:
    if meta.generate_name:
        stem = formats.generate_name_stem(meta.generate_name)
        yield from invalid_each(path.child("generateName"), meta.generate_name, name_format(stem))
    if meta.name:
        yield from invalid_each(path.child("name"), meta.name, name_format(meta.name))
    else:
        yield required(path.child("name"), "name or generateName is required")
    yield from _namespace(meta.namespace, path.child("namespace"), namespaced=namespaced)
    if meta.generation < 0:
        yield invalid(path.child("generation"), meta.generation, NOT_NEGATIVE)
    yield from _open_parts(meta, path)
    yield from _finalizers(meta.finalizers, path.child("finalizers"))
    yield from _managed_fields(meta.managed_fields, path.child("managedFields"))
    yield from _finalizer_names(meta.finalizers, path.child("finalizers"))


def validate_object_meta_update(new: ObjectMeta, old: ObjectMeta, path: FieldPath) -> FieldErrors:
    if old.deletion_timestamp is not None and (extra := sorted(set(new.finalizers) - set(old.finalizers))):
        shown = ", ".join(map(go_quote, extra))
        yield forbidden(
            path.child("finalizers"),
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{shown}}}",
        )
    if not new.resource_version:
        yield invalid(path.child("resourceVersion"), "", "must be specified for an update")
    if new.generation < old.generation:
        yield invalid(path.child("generation"), new.generation, "must not be decremented")
    for wire_name, new_value, old_value in (
        ("name", new.name, old.name),
        ("namespace", new.namespace, old.namespace),
        ("uid", new.uid, old.uid),
        ("creationTimestamp", new.creation_timestamp, old.creation_timestamp),
        ("deletionTimestamp", new.deletion_timestamp, old.deletion_timestamp),
        (
            "deletionGracePeriodSeconds",
            new.deletion_grace_period_seconds,
            old.deletion_grace_period_seconds,
        ),
    ):
        if new_value != old_value:
            yield invalid(path.child(wire_name), new_value, IMMUTABLE)
    yield from _open_parts(new, path)
    yield from _managed_fields(new.managed_fields, path.child("managedFields"))
    yield from _finalizer_names(new.finalizers, path.child("finalizers"))


def validate_labels(labels: Mapping[str, str], path: FieldPath) -> FieldErrors:
    for key, value in labels.items():
        yield from invalid_each(path, key, formats.label_key(key))
        yield from invalid_each(path, value, formats.label_value(value))


def validate_annotations(annotations: Mapping[str, str], path: FieldPath) -> FieldErrors:
    size = 0
    for key, value in annotations.items():
        yield from invalid_each(path, key, formats.annotation_key(key))
        size += len(key.encode()) + len(value.encode())
    if size > ANNOTATIONS_LIMIT:
        yield too_long(path, ANNOTATIONS_LIMIT)


def validate_label_selector(selector: LabelSelector | None, path: FieldPath) -> FieldErrors:
    if selector is None:
        return
    yield from validate_labels(selector.match_labels, path.child("matchLabels"))
    for position, requirement in enumerate(selector.match_expressions):
        yield from _selector_requirement(requirement, path.child("matchExpressions").at(position))


def _selector_requirement(requirement: LabelSelectorRequirement, path: FieldPath) -> FieldErrors:
    match requirement.operator:
        case "In" | "NotIn":
            if not requirement.values:
                yield required(path.child("values"), "must be specified when `operator` is 'In' or 'NotIn'")
        case "Exists" | "DoesNotExist":
            if requirement.values:
                yield forbidden(
                    path.child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                )
        case _:
            yield invalid(path.child("operator"), requirement.operator, "not a valid selector operator")
    yield from invalid_each(path.child("key"), requirement.key, formats.label_key(requirement.key))
    for position, value in enumerate(requirement.values):
        yield from invalid_each(path.child("values").at(position), value, formats.label_value(value))


def _open_parts(meta: ObjectMeta, path: FieldPath) -> FieldErrors:
    yield from validate_labels(meta.labels, path.child("labels"))
    yield from validate_annotations(meta.annotations, path.child("annotations"))
    yield from _owner_references(meta.owner_references, path.child("ownerReferences"))


def _namespace(namespace: str, path: FieldPath, *, namespaced: bool) -> FieldErrors:
    if not namespaced:
        if namespace:
            yield forbidden(path, "not allowed on this type")
    elif namespace:
        yield from invalid_each(path, namespace, formats.dns_label(namespace))
    else:
        yield required(path)


def _owner_references(references: tuple[OwnerReference, ...], path: FieldPath) -> FieldErrors:
    controller = ""
    for reference in references:
        version = reference.api_version.rpartition("/")[2]
        if not version:
            yield invalid(path.child("apiVersion"), reference.api_version, "version must not be empty")
        for wire_name, value in (("kind", reference.kind), ("name", reference.name), ("uid", reference.uid)):
            if not value:
                yield invalid(path.child(wire_name), value, "must not be empty")
        if (reference.api_version, reference.kind) == ("v1", "Event"):
            yield invalid(path, reference, "/v1, Kind=Event is disallowed from being an owner")
        if reference.controller:
            current = f"{reference.kind}/{reference.name}"
            if controller:
                yield invalid(
                    path,
                    references,
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {controller} and {current}',
                )
            controller = controller or current


def _finalizers(finalizers: tuple[str, ...], path: FieldPath) -> FieldErrors:
    for finalizer in finalizers:
        yield from invalid_each(path, finalizer, formats.label_key(finalizer))
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        yield invalid(path, finalizers, "finalizer orphan and foregroundDeletion cannot be both set")


def _finalizer_names(finalizers: tuple[str, ...], path: FieldPath) -> FieldErrors:
    for position, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            message = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid(path.at(position), finalizer, message)


def _managed_fields(entries: tuple[ManagedFieldsEntry, ...], path: FieldPath) -> FieldErrors:
    for position, entry in enumerate(entries):
        here = path.at(position)
        if entry.operation not in {"Apply", "Update"}:
            yield invalid(here.child("operation"), entry.operation, "must be `Apply` or `Update`")
        if entry.fields_type not in {"", "FieldsV1"}:
            yield invalid(here.child("fieldsType"), entry.fields_type, "must be `FieldsV1`")
        if len(entry.manager) > FIELD_MANAGER_LIMIT:
            yield too_long(here.child("manager"), FIELD_MANAGER_LIMIT)
        offset = 0
        for character in entry.manager[:FIELD_MANAGER_LIMIT]:
            if not character.isprintable():
                detail = f"invalid character U+{ord(character):04X} (at position {offset})"
                yield invalid(here.child("manager"), entry.manager, detail)
            offset += len(character.encode())
        if len(entry.subresource) > SUBRESOURCE_LIMIT:
            yield too_long(here.child("subresource"), SUBRESOURCE_LIMIT)
