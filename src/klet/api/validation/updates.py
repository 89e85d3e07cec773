"""What may change on a pod that exists (upstream: `ValidatePodUpdate`, `ValidatePodEphemeralContainersUpdate`)."""

import difflib
from typing import Final

import msgspec
from msgspec.structs import replace

from klet.api.codec import to_builtins
from klet.api.container import Container
from klet.api.placement import Affinity, NodeAffinity, NodeSelectorTerm, Toleration
from klet.api.pod import Pod, PodSchedulingGate, PodSpec
from klet.api.pod_annotations import MIRROR_ANNOTATION
from klet.api.validation import formats
from klet.api.validation.annotations import validate_pod_annotation_updates
from klet.api.validation.containers import validate_image_blanks
from klet.api.validation.errors import FieldError, FieldErrors, forbidden, invalid, required
from klet.api.validation.fieldpath import METADATA, ROOT, SPEC, FieldPath
from klet.api.validation.metadata import validate_object_meta_update
from klet.api.validation.options import API_POD, PodValidationOptions
from klet.api.validation.placement import REQUIRED_TERMS, validate_tolerations
from klet.api.validation.pod import validate_pod
from klet.api.validation.podspec import MAX_INT32
from klet.api.validation.rendering import go_quote

_UPDATABLE: Final = ",".join(
    (
        "`spec.containers[*].image`",
        "`spec.initContainers[*].image`",
        "`spec.activeDeadlineSeconds`",
        "`spec.tolerations` (only additions to existing tolerations)",
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
    )
)


def validate_pod_update(new: Pod, old: Pod, options: PodValidationOptions = API_POD) -> tuple[FieldError, ...]:
    """Check a write to the pod itself, without its status."""
    errors = list(_always(new, old, options))
    errors += validate_pod_annotation_updates(new, old)
    for wire_name, new_list, old_list in (
        ("containers", new.spec.containers, old.spec.containers),
        ("initContainers", new.spec.init_containers, old.spec.init_containers),
    ):
        path = SPEC.child(wire_name)
        if len(new_list) != len(old_list):
            return (*errors, forbidden(path, "pod updates may not add or remove containers"))
        errors += _images(new_list, path)
    deadline = tuple(_active_deadline(new.spec.active_deadline_seconds, old.spec.active_deadline_seconds))
    errors += deadline
    if deadline and new.spec.active_deadline_seconds is not None:
        return tuple(errors)
    errors += _only_added_tolerations(new.spec.tolerations, old.spec.tolerations, options)
    errors += _only_deleted_gates(new.spec.scheduling_gates, old.spec.scheduling_gates)
    if new.spec != old.spec:
        errors += _fixed_fields(new.spec, old.spec)
    return tuple(errors)


def validate_ephemeral_containers_update(
    new: Pod, old: Pod, options: PodValidationOptions = API_POD
) -> tuple[FieldError, ...]:
    """Check a write to the `ephemeralcontainers` subresource, which may only add containers."""
    if MIRROR_ANNOTATION in old.metadata.annotations:
        return (forbidden(ROOT, "static pods do not support ephemeral containers"),)
    errors = list(_always(new, old, options))
    errors += validate_pod_annotation_updates(new, old)
    path = SPEC.child("ephemeralContainers")
    now = {container.name: container for container in new.spec.ephemeral_containers}
    for container in old.spec.ephemeral_containers:
        subject = f"existing ephemeral containers {go_quote(container.name)}"
        if (current := now.get(container.name)) is None:
            errors.append(forbidden(path, f"{subject} may not be removed\n"))
        elif current != container:
            errors.append(forbidden(path, f"{subject} may not be changed\n{describe_change(container, current)}"))
    return tuple(errors)


def describe_change(old: msgspec.Struct, new: msgspec.Struct) -> str:
    """Return a line-by-line difference for people; clients must not read it."""
    lines = (msgspec.json.format(msgspec.json.encode(to_builtins(item)), indent=2).decode() for item in (old, new))
    before, after = (text.splitlines() for text in lines)
    return "\n".join(line for line in difflib.ndiff(before, after) if line[:1] in "+-")


def _always(new: Pod, old: Pod, options: PodValidationOptions) -> FieldErrors:
    yield from validate_object_meta_update(new.metadata, old.metadata, METADATA)
    yield from validate_pod(new, options)


def _images(containers: tuple[Container, ...], path: FieldPath) -> FieldErrors:
    for position, container in enumerate(containers):
        if not container.image:
            yield required(path.at(position).child("image"))
        yield from validate_image_blanks(container, path.at(position))


def _active_deadline(new: int | None, old: int | None) -> FieldErrors:
    path = SPEC.child("activeDeadlineSeconds")
    if new is None:
        if old is not None:
            yield invalid(path, new, "must not update from a positive integer to nil value")
    elif not 0 <= new <= MAX_INT32:
        yield invalid(path, new, formats.between(0, MAX_INT32))
    elif old is not None and old < new:
        yield invalid(path, new, "must be less than or equal to previous value")


def _only_added_tolerations(
    new: tuple[Toleration, ...], old: tuple[Toleration, ...], options: PodValidationOptions
) -> FieldErrors:
    path = SPEC.child("tolerations")
    kept = {_without_seconds(toleration) for toleration in new}
    if all(_without_seconds(toleration) in kept for toleration in old):
        yield from validate_tolerations(new, path, comparisons=options.taint_comparisons)
    else:
        yield forbidden(path, "existing toleration can not be modified except its tolerationSeconds")


def _without_seconds(toleration: Toleration) -> Toleration:
    return replace(toleration, toleration_seconds=None)


def _only_deleted_gates(new: tuple[PodSchedulingGate, ...], old: tuple[PodSchedulingGate, ...]) -> FieldErrors:
    known = {gate.name for gate in old}
    for position, gate in enumerate(new):
        if gate.name not in known:
            path = SPEC.child("schedulingGates").at(position).child("name")
            yield forbidden(path, f"only deletion is allowed, but found new scheduling gate '{gate.name}'")


def _fixed_fields(new: PodSpec, old: PodSpec) -> FieldErrors:
    """Put back what may change; whatever still differs may not."""
    munged = replace(
        new,
        containers=_with_images_of(new.containers, old.containers),
        init_containers=_with_images_of(new.init_containers, old.init_containers),
        active_deadline_seconds=old.active_deadline_seconds,
        scheduling_gates=old.scheduling_gates,
        tolerations=old.tolerations,
    )
    previous = old.termination_grace_period_seconds
    if previous is not None and previous < 0 and munged.termination_grace_period_seconds == 1:
        munged = replace(munged, termination_grace_period_seconds=previous)
    if old.scheduling_gates:
        yield from _gated_selector(new, old)
        yield from _gated_affinity(_node_affinity(new.affinity), _node_affinity(old.affinity))
        munged = replace(munged, node_selector=old.node_selector, affinity=_put_back(new.affinity, old.affinity))
    if munged != old:
        difference = describe_change(old, munged)
        yield forbidden(SPEC, f"pod updates may not change fields other than {_UPDATABLE}\n{difference}")


def _with_images_of(new: tuple[Container, ...], old: tuple[Container, ...]) -> tuple[Container, ...]:
    return tuple(replace(mine, image=theirs.image) for mine, theirs in zip(new, old, strict=True))


def _gated_selector(new: PodSpec, old: PodSpec) -> FieldErrors:
    if any(new.node_selector.get(key) != value for key, value in old.node_selector.items()):
        message = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield invalid(SPEC.child("nodeSelector"), new.node_selector, message)


def _node_affinity(affinity: Affinity | None) -> NodeAffinity | None:
    return None if affinity is None else affinity.node_affinity


def _put_back(new: Affinity | None, old: Affinity | None) -> Affinity | None:
    """Return the new affinity with the old node affinity; None where it then says nothing, as the old one did."""
    node = _node_affinity(old)
    if new is None:
        return None if node is None else Affinity(node_affinity=node)
    munged = replace(new, node_affinity=node)
    return None if old is None and munged == Affinity() else munged


def _gated_affinity(new: NodeAffinity | None, old: NodeAffinity | None) -> FieldErrors:
    path = SPEC.child("affinity", "nodeAffinity", REQUIRED_TERMS, "nodeSelectorTerms")
    before, after = _required_terms(old), _required_terms(new)
    if not before:
        return
    if len(before) != len(after):
        yield invalid(path, after, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
        return
    for position, (mine, theirs) in enumerate(zip(after, before, strict=True)):
        if not _has_only_additions(mine, theirs):
            yield invalid(path.at(position), mine, "only additions are allowed (no mutations or deletions)")


def _required_terms(affinity: NodeAffinity | None) -> tuple[NodeSelectorTerm, ...]:
    if affinity is None or affinity.required_during_scheduling_ignored_during_execution is None:
        return ()
    return affinity.required_during_scheduling_ignored_during_execution.node_selector_terms


def _has_only_additions(new: NodeSelectorTerm, old: NodeSelectorTerm) -> bool:
    # An empty term matches nothing: adding to it would let the pod onto more nodes, not fewer.
    if not old.match_expressions and not old.match_fields:
        return not new.match_expressions and not new.match_fields
    return (
        new.match_expressions[: len(old.match_expressions)] == old.match_expressions
        and new.match_fields[: len(old.match_fields)] == old.match_fields
    )
