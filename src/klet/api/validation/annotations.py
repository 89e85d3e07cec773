"""Rules for annotations that mean something on a pod: mirror pods, deletion cost, seccomp and AppArmor."""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from klet.api.pod import Pod, PodSpec
from klet.api.pod_annotations import MIRROR_ANNOTATION
from klet.api.security import AppArmorProfile, SeccompProfile
from klet.api.validation import formats
from klet.api.validation.errors import FieldErrors, forbidden, invalid, invalid_each
from klet.api.validation.fieldpath import METADATA, SPEC, FieldPath
from klet.api.validation.rendering import go_quote
from klet.api.validation.visiting import containers_with_paths

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
SECCOMP_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"
APP_ARMOR_CONTAINER: Final = "container.apparmor.security.beta.kubernetes.io/"

_PATH: Final = METADATA.child("annotations")
_COST: Final = re.compile(r"-?(0|[1-9][0-9]*)")
_RUNTIME_DEFAULT: Final = "runtime/default"
_SECCOMP_DEFAULTS: Final = frozenset({_RUNTIME_DEFAULT, "docker/default"})
_UNCONFINED: Final = "unconfined"
_LOCALHOST: Final = "localhost/"


def validate_pod_annotations(annotations: Mapping[str, str], spec: PodSpec) -> FieldErrors:
    if (mirror := annotations.get(MIRROR_ANNOTATION)) is not None and not spec.node_name:
        yield invalid(_PATH.key(MIRROR_ANNOTATION), mirror, "must set spec.nodeName if mirror pod annotation is set")
    if (cost := annotations.get(DELETION_COST)) is not None and not _is_deletion_cost(cost):
        yield invalid(_PATH.key(DELETION_COST), cost, "must be a 32bit integer")
    for key, profile in annotations.items():
        if key == SECCOMP_POD or key.startswith(SECCOMP_CONTAINER):
            yield from _seccomp_value(profile, _PATH.child(key))
    names = {container.name for container, _ in containers_with_paths(spec, SPEC)}
    for key, profile in annotations.items():
        if not key.startswith(APP_ARMOR_CONTAINER):
            continue
        name = key.removeprefix(APP_ARMOR_CONTAINER)
        if name not in names:
            yield invalid(_PATH.key(key), name, "container not found")
        if profile not in {"", _RUNTIME_DEFAULT, _UNCONFINED} and not profile.startswith(_LOCALHOST):
            yield invalid(_PATH.key(key), profile, f"invalid AppArmor profile name: {go_quote(profile)}")


def validate_pod_annotation_updates(new: Pod, old: Pod) -> FieldErrors:
    for key, value in old.metadata.annotations.items():
        if new.metadata.annotations.get(key) != value:
            yield from _fixed(key, "remove or update")
    for key in new.metadata.annotations:
        if key not in old.metadata.annotations:
            yield from _fixed(key, "add")
    yield from validate_pod_annotations(new.metadata.annotations, new.spec)


def validate_annotations_match_fields(pod: Pod) -> FieldErrors:
    """Check that an old annotation and the field that replaced it agree where both are given."""
    annotations, spec = pod.metadata.annotations, pod.spec
    if not annotations:
        return
    if spec.security_context and (profile := spec.security_context.seccomp_profile) and SECCOMP_POD in annotations:
        here = SPEC.child("securityContext", "seccompProfile")
        yield from _seccomp_matches(annotations[SECCOMP_POD], profile, here)
    for container, path in containers_with_paths(spec, SPEC):
        context = container.security_context
        value = annotations.get(SECCOMP_CONTAINER + container.name)
        if value is not None and context is not None and context.seccomp_profile is not None:
            here = path.child("securityContext", "seccompProfile")
            yield from _seccomp_matches(value, context.seccomp_profile, here)
    if spec.os is not None and spec.os.name == "windows":
        return
    inherited = spec.security_context.app_armor_profile if spec.security_context else None
    for container, path in containers_with_paths(spec, SPEC):
        context = container.security_context
        armor = (context.app_armor_profile if context else None) or inherited
        value = annotations.get(APP_ARMOR_CONTAINER + container.name)
        if value is not None and armor is not None:
            yield from _app_armor_matches(value, armor, path.child("securityContext", "appArmorProfile"))


def _is_deletion_cost(text: str) -> bool:
    return bool(_COST.fullmatch(text)) and text != "-0" and -(2**31) <= int(text) < 2**31


def _fixed(key: str, action: str) -> FieldErrors:
    if key.startswith(APP_ARMOR_CONTAINER):
        yield forbidden(_PATH.key(key), f"may not {action} AppArmor annotations")
    if key == MIRROR_ANNOTATION:
        yield forbidden(_PATH.key(key), f"may not {action} mirror pod annotation")


def _seccomp_value(profile: str, path: FieldPath) -> FieldErrors:
    if profile.startswith(_LOCALHOST):
        name = profile.removeprefix(_LOCALHOST)
        yield from invalid_each(path, name, formats.local_path(name))
    elif profile not in _SECCOMP_DEFAULTS and profile != _UNCONFINED:
        yield invalid(path, profile, "must be a valid seccomp profile")


def _seccomp_matches(value: str, profile: SeccompProfile, path: FieldPath) -> FieldErrors:
    defaults = {"Unconfined": {_UNCONFINED}, "RuntimeDefault": _SECCOMP_DEFAULTS}
    yield from _matches("seccomp", value, profile, defaults.get(profile.type), path)


def _app_armor_matches(value: str, profile: AppArmorProfile, path: FieldPath) -> FieldErrors:
    defaults = {"Unconfined": {_UNCONFINED}, "RuntimeDefault": {_RUNTIME_DEFAULT}}
    yield from _matches("apparmor", value, profile, defaults.get(profile.type), path)


def _matches(
    kind: str,
    value: str,
    profile: SeccompProfile | AppArmorProfile,
    expected: AbstractSet[str] | None,
    path: FieldPath,
) -> FieldErrors:
    if expected is not None:
        if value not in expected:
            yield forbidden(path.child("type"), f"{kind} type in annotation and field must match")
    elif profile.type == "Localhost":
        if not value.startswith(_LOCALHOST):
            yield forbidden(path.child("type"), f"{kind} type in annotation and field must match")
        elif value.removeprefix(_LOCALHOST) != profile.localhost_profile:
            yield forbidden(path.child("localhostProfile"), f"{kind} profile in annotation and field must match")
