"""Decodes the bytes of a manifest to static pods: defaulted, given UID and node, and validated. Pure.

Unknown fields are ignored, as upstream ignores them; of a stream of documents only the first is read.
"""

import itertools
from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from klet.api.codec import DecodeError, convert
from klet.api.defaults import default_pod
from klet.api.pod import Pod
from klet.api.static_pods import StaticOrigin, default_static_pod, find_static_pod_problem, static_pod_uid
from klet.api.validation.options import STATIC_POD, PodValidationOptions
from klet.api.validation.pod import validate_pod_create
from klet.config.document import JsonObject, parse_document
from klet.config.errors import ConfigError
from klet.model.pods import UID_RULE, PodUID
from klet.sources.errors import MOST_PROBLEMS, ManifestError, Problem

MAX_MANIFEST: Final = 10 * 1024 * 1024
_BOUND: Final = "bound"
"""In place of a location, for a pod that has none."""


class Origin(Struct, frozen=True, kw_only=True):
    """Where a manifest was found, and what that decides about its pods."""

    kind: StaticOrigin
    location: str
    """The path or URL; it is part of the pods' identity."""
    node_name: str
    shown: str = ""
    """The location for messages, without secrets such as a URL's password; empty: `location` itself."""
    prevent_api_references: bool = True
    """Gate PreventStaticPodAPIReferences."""
    options: PodValidationOptions = STATIC_POD


def decode_pod(data: bytes, origin: Origin) -> Pod:
    """Read the one pod of a manifest, or raise ManifestError."""
    fields = _parse(data, origin)
    if problem := _wrong_kind(fields, "Pod"):
        raise _error(origin, problem)
    return _finish(fields, origin, prefix="", check_references=True)


def decode_bound_pod(data: bytes, origin: Origin) -> Pod:
    """Read the one pod of a manifest as an API server would have bound it to this node, or raise ManifestError."""
    fields = _parse(data, origin)
    if problem := _wrong_kind(fields, "Pod"):
        raise _error(origin, problem)
    try:
        pod = default_pod(convert(Pod, fields))
    except DecodeError as error:
        raise _error(origin, Problem(error.field, error.message)) from error
    if not pod.metadata.name:
        raise _error(origin, Problem("metadata.name", "Required value: name or generateName is required"))
    uid = pod.metadata.uid or static_pod_uid(pod, node_name="", origin=StaticOrigin.URL, location=_BOUND)
    bound = replace(
        pod,
        metadata=replace(pod.metadata, uid=uid, namespace=pod.metadata.namespace or "default"),
        spec=replace(pod.spec, node_name=pod.spec.node_name or origin.node_name),
        status=replace(pod.status, phase="Pending"),
    )
    _check(bound, replace(origin.options, resource_is_pod=True), origin, prefix="")
    return bound


def decode_pods(data: bytes, origin: Origin) -> tuple[Pod, ...]:
    """Read a pod or a PodList, or raise ManifestError; if one pod is invalid, the whole list is rejected."""
    fields = _parse(data, origin)
    if _wrong_kind(fields, "PodList"):
        return (decode_pod(data, origin),)
    items = fields.get("items")
    if not isinstance(items, list | None):
        raise _error(origin, Problem("items", "Expected `array`"))
    pods: list[Pod] = []
    for index, item in enumerate(items or ()):
        prefix = f"items[{index}]"
        if not isinstance(item, dict):
            raise _error(origin, Problem(prefix, "Expected `object`"))
        # With the gate off, upstream does not check which API objects the pods of a PodList refer to.
        pods.append(_finish(item, origin, prefix=prefix, check_references=origin.prevent_api_references))
    return tuple(pods)


def _parse(data: bytes, origin: Origin) -> JsonObject:
    if len(data) > MAX_MANIFEST:
        raise _error(origin, Problem("", f"the manifest is longer than {MAX_MANIFEST} bytes"))
    try:
        return parse_document(data).fields
    except ConfigError as error:
        raise _error(origin, Problem("", str(error))) from error


def _wrong_kind(fields: JsonObject, wanted: str) -> Problem | None:
    kind, version = fields.get("kind"), fields.get("apiVersion")
    if not kind:
        return Problem("kind", f"Required value: must be {wanted}")
    if kind != wanted:
        return Problem("kind", f"{kind!r} is not {wanted}")
    if version != "v1":
        return Problem("apiVersion", f"{version!r} is not v1")
    return None


def _finish(fields: JsonObject, origin: Origin, *, prefix: str, check_references: bool) -> Pod:
    """Default, place and check one pod, in upstream's order."""
    try:
        pod = default_pod(convert(Pod, fields))
    except DecodeError as error:
        raise _error(origin, Problem(_join(prefix, error.field), error.message)) from error
    if not pod.metadata.name:
        raise _error(origin, Problem(_join(prefix, "metadata.name"), "invalid pod: name is needed for the pod"))
    placed = default_static_pod(pod, node_name=origin.node_name, origin=origin.kind, location=origin.location)
    _check(placed, origin.options, origin, prefix=prefix)
    if check_references:
        reason = find_static_pod_problem(placed, prevent_api_references=origin.prevent_api_references)
        if reason is not None:
            raise _error(origin, Problem(prefix, reason))
    return placed


def _check(pod: Pod, options: PodValidationOptions, origin: Origin, *, prefix: str) -> None:
    broken = itertools.islice(_broken_rules(pod, options), MOST_PROBLEMS)
    problems = tuple(Problem(_join(prefix, field), rule) for field, rule in broken)
    if problems:
        raise _error(origin, *problems)


def _broken_rules(pod: Pod, options: PodValidationOptions) -> Iterator[tuple[str, str]]:
    if not isinstance(pod.metadata.uid, PodUID):
        yield "metadata.uid", f"Invalid value: {UID_RULE}"
    for error in validate_pod_create(pod, options):
        yield str(error.field), error.body


def _join(prefix: str, field: str) -> str:
    return f"{prefix}.{field}" if prefix and field else prefix or field


def _error(origin: Origin, *problems: Problem) -> ManifestError:
    return ManifestError(location=origin.shown or origin.location, problems=problems)
