"""Merges the pods that a source has now into changes since the last time (upstream's PodConfig storage). Pure.

Sources never see one another's pods. A pod keeps the time at which it was first seen while it changes.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from klet.api.meta import ObjectMeta
from klet.api.pod import Pod
from klet.api.pod_annotations import MIRROR_ANNOTATION, SEEN_ANNOTATION, SOURCE_ANNOTATION
from klet.model.pods import (
    PodUID,
    format_pod,
    full_name,
    uid_of,
)


class SourceOperation(StrEnum):
    """What a source means by the pods that it sends."""

    SET = "SET"
    """These are all of its pods."""
    ADD = "ADD"
    """These are new or changed; others stay as they are."""
    REMOVE = "REMOVE"
    """These are gone."""


class PodChangeKind(StrEnum):
    """What happened to the pods of a change (upstream's PodOperation)."""

    REMOVE = "REMOVE"
    ADD = "ADD"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    """They have a deletion timestamp: stop them gracefully; the source still has them."""
    RECONCILE = "RECONCILE"
    """Only their status has changed."""


class PodChanges(Struct, frozen=True, kw_only=True):
    """Pods of one source to which the same happened. An empty ADD means: the source was read and has nothing new."""

    kind: PodChangeKind
    source: str
    pods: tuple[Pod, ...] = ()


class Duplicate(Struct, frozen=True, kw_only=True):
    """A pod that is ignored, and the pod of the same batch that is used."""

    pod: Pod
    used: Pod


class Merged(Struct, frozen=True, kw_only=True):
    """The pods of a source after a merge, and the changes to send, in this order."""

    known: Mapping[PodUID, Pod]
    changes: tuple[PodChanges, ...]
    duplicates: tuple[Duplicate, ...] = ()
    """Pods that were ignored because another of the same batch has their name or their UID."""


def merge_pods(
    known: Mapping[PodUID, Pod],
    pods: Iterable[Pod],
    *,
    source: str,
    now: datetime,
    operation: SourceOperation = SourceOperation.SET,
    is_first: bool = False,
    last: Mapping[str, Pod] = MappingProxyType({}),
) -> Merged:
    """Compare the pods that a source sends with its known pods. `is_first` marks the first SET of the source.

    `last` is what it sent before: if it sends the very same object again, nothing is compared.
    """
    accepted, duplicates = _without_duplicates(tuple(pods), known)
    found: dict[PodChangeKind, list[Pod]] = {kind: [] for kind in PodChangeKind}
    merged = dict(known)
    if operation is SourceOperation.REMOVE:
        found[PodChangeKind.REMOVE] = [merged.pop(uid_of(pod)) for pod in accepted if uid_of(pod) in merged]
    else:
        for pod in accepted:
            # Most pods of a snapshot are those of the one before: each of them costs next to nothing.
            if last.get(pod.metadata.uid) is pod and pod.metadata.uid in merged:
                continue
            uid = uid_of(pod)
            result, kind = _merge_pod(merged.get(uid), pod, source=source, now=now)
            merged[uid] = result
            if kind is not None:
                found[kind].append(result)
    if operation is SourceOperation.SET:
        sent = {pod.metadata.uid for pod in accepted}
        found[PodChangeKind.REMOVE] = [merged.pop(uid) for uid in tuple(merged) if uid not in sent]
    return Merged(known=merged, changes=_in_order(found, source, is_first=is_first), duplicates=duplicates)


def duplicate_message(duplicate: Duplicate, source: str) -> str:
    """Return why a pod was ignored: for a name in upstream's words; upstream does not check UIDs."""
    pod = duplicate.pod
    shared = f'name "{pod.metadata.name}"'
    if full_name(pod) != full_name(duplicate.used):
        shared = f'UID "{uid_of(pod)}", which {format_pod(duplicate.used)} has'
    return f"Error validating pod {format_pod(pod)} from {source} due to duplicate pod {shared}, ignoring"


_LOCAL: Final = (SOURCE_ANNOTATION, MIRROR_ANNOTATION, SEEN_ANNOTATION)
"""Annotations that the node writes; if only they differ, the pod has not changed."""


def _without_duplicates(
    pods: tuple[Pod, ...], known: Mapping[PodUID, Pod]
) -> tuple[tuple[Pod, ...], tuple[Duplicate, ...]]:
    """Keep one pod for each name and for each UID: all that a pod has on the node is found by its UID."""
    names = {(pod.metadata.name, pod.metadata.namespace) for pod in pods}
    if len(names) == len(pods) == len({pod.metadata.uid for pod in pods}):
        return pods, ()
    by_name: dict[str, Pod] = {}
    by_uid: dict[PodUID, Pod] = {}
    duplicates: list[Duplicate] = []
    # A pod that runs is not replaced by one that claims its UID, wherever that one is in the batch.
    for pod in sorted(pods, key=lambda pod: not _is_known(pod, known)):
        used = by_name.get(full_name(pod)) or by_uid.get(uid_of(pod))
        if used is not None:
            duplicates.append(Duplicate(pod=pod, used=used))
        else:
            by_name[full_name(pod)] = by_uid[uid_of(pod)] = pod
    accepted = {id(pod) for pod in by_name.values()}
    return tuple(pod for pod in pods if id(pod) in accepted), tuple(duplicates)


def _is_known(pod: Pod, known: Mapping[PodUID, Pod]) -> bool:
    before = known.get(uid_of(pod))
    return before is not None and full_name(before) == full_name(pod)


def _merge_pod(old: Pod | None, new: Pod, *, source: str, now: datetime) -> tuple[Pod, PodChangeKind | None]:
    new = _annotated(new, {SOURCE_ANNOTATION: source})
    if old is None:
        return _annotated(new, {SEEN_ANNOTATION: _format_seen(now)}), PodChangeKind.ADD
    if _means_the_same(old, new):
        if old.status == new.status:
            return old, None
        if _claims(old) != _claims(new):
            # Upstream only reconciles here; but a pod that waits for its ResourceClaims has to see them.
            return replace(old, status=new.status), PodChangeKind.UPDATE
        return replace(old, status=new.status), PodChangeKind.RECONCILE
    kind = PodChangeKind.UPDATE if new.metadata.deletion_timestamp is None else PodChangeKind.DELETE
    return replace(old, metadata=_updated_meta(old.metadata, new.metadata), spec=new.spec, status=new.status), kind


def _means_the_same(old: Pod, new: Pod) -> bool:
    return (
        old.spec == new.spec
        and old.metadata.labels == new.metadata.labels
        and old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
        and old.metadata.deletion_grace_period_seconds == new.metadata.deletion_grace_period_seconds
        and _foreign(old.metadata.annotations) == _foreign(new.metadata.annotations)
    )


def _claims(pod: Pod) -> tuple[object, ...]:
    """Return which ResourceClaims were made for the pod."""
    return (pod.status.resource_claim_statuses, pod.status.extended_resource_claim_status)


def _updated_meta(old: ObjectMeta, new: ObjectMeta) -> ObjectMeta:
    kept = {key: old.annotations[key] for key in _LOCAL if key in old.annotations}
    return replace(
        old,
        labels=new.labels,
        deletion_timestamp=new.deletion_timestamp,
        deletion_grace_period_seconds=new.deletion_grace_period_seconds,
        generation=new.generation,
        annotations={**new.annotations, **kept},
    )


def _foreign(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key not in _LOCAL}


def _annotated(pod: Pod, annotations: Mapping[str, str]) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, annotations={**pod.metadata.annotations, **annotations}))


def _format_seen(now: datetime) -> str:
    zone = now.isoformat()[-6:]
    return f"{now:%Y-%m-%dT%H:%M:%S.%f}000{'Z' if zone == '+00:00' else zone}"


def _in_order(found: Mapping[PodChangeKind, list[Pod]], source: str, *, is_first: bool) -> tuple[PodChanges, ...]:
    order = [kind for kind in PodChangeKind if found[kind]]
    news = {PodChangeKind.ADD, PodChangeKind.UPDATE, PodChangeKind.DELETE}
    if is_first and not news.intersection(order):
        # The sync loop counts a source as seen when a change of it was handled, so there must be one.
        place = order.index(PodChangeKind.RECONCILE) if PodChangeKind.RECONCILE in order else len(order)
        order.insert(place, PodChangeKind.ADD)
    return tuple(PodChanges(kind=kind, source=source, pods=tuple(found[kind])) for kind in order)
