"""Merging: from the pods a source has now to what changed since the last time (upstream's PodConfig storage).

Sources never see one another's pods. The pods kept are those that were handed on: their time of first sight stays
while they change.
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


class Operation(StrEnum):
    """What a source says about the pods it sends."""

    SET = "SET"
    """These are all."""
    ADD = "ADD"
    """These are new or changed; nothing is said of others."""
    REMOVE = "REMOVE"
    """These are gone."""


class ChangeKind(StrEnum):
    """What happened to the pods of a change."""

    REMOVE = "REMOVE"
    ADD = "ADD"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    """They are to be deleted gracefully; they are still there."""
    RECONCILE = "RECONCILE"
    """Only their status is another."""


class PodChanges(Struct, frozen=True, kw_only=True):
    """Pods of one source to which the same happened. An empty ADD says that a source was heard and has nothing new."""

    kind: ChangeKind
    source: str
    pods: tuple[Pod, ...] = ()


class Merged(Struct, frozen=True, kw_only=True):
    """The pods of a source after a merge, and what to hand on, in this order."""

    known: Mapping[PodUID, Pod]
    changes: tuple[PodChanges, ...]
    duplicates: tuple[Pod, ...] = ()
    """Pods left out because another of the same batch has their name."""


def merge_pods(
    known: Mapping[PodUID, Pod],
    pods: Iterable[Pod],
    *,
    source: str,
    now: datetime,
    operation: Operation = Operation.SET,
    is_first: bool = False,
    last: Mapping[PodUID, Pod] = MappingProxyType({}),
) -> Merged:
    """Compare what a source sends with what is known of it. `is_first` marks the first SET of the source.

    `last` is what it sent before: where it sends the very same object again, there is nothing to compare.
    """
    accepted, duplicates = _without_duplicates(pods)
    found: dict[ChangeKind, list[Pod]] = {kind: [] for kind in ChangeKind}
    merged = dict(known)
    if operation is Operation.REMOVE:
        found[ChangeKind.REMOVE] = [merged.pop(uid_of(pod)) for pod in accepted if uid_of(pod) in merged]
    else:
        for pod in accepted:
            uid = uid_of(pod)
            if uid in merged and last.get(uid) is pod:
                continue
            result, kind = _merge_pod(merged.get(uid), pod, source=source, now=now)
            merged[uid] = result
            if kind is not None:
                found[kind].append(result)
    if operation is Operation.SET:
        sent = {uid_of(pod) for pod in accepted}
        found[ChangeKind.REMOVE] = [merged.pop(uid) for uid in tuple(merged) if uid not in sent]
    return Merged(known=merged, changes=_in_order(found, source, is_first=is_first), duplicates=duplicates)


def duplicate_message(pod: Pod, source: str) -> str:
    """Why a pod was left out, in upstream's words."""
    name = pod.metadata.name
    return f'Error validating pod {format_pod(pod)} from {source} due to duplicate pod name "{name}", ignoring'


_LOCAL: Final = (SOURCE_ANNOTATION, MIRROR_ANNOTATION, SEEN_ANNOTATION)
"""Annotations that the node writes; a source that sends other ones has not changed the pod."""


def _without_duplicates(pods: Iterable[Pod]) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
    accepted: dict[str, Pod] = {}
    duplicates: list[Pod] = []
    for pod in pods:
        if full_name(pod) in accepted:
            duplicates.append(pod)
        else:
            accepted[full_name(pod)] = pod
    return tuple(accepted.values()), tuple(duplicates)


def _merge_pod(old: Pod | None, new: Pod, *, source: str, now: datetime) -> tuple[Pod, ChangeKind | None]:
    new = _annotated(new, {SOURCE_ANNOTATION: source})
    if old is None:
        return _annotated(new, {SEEN_ANNOTATION: _format_seen(now)}), ChangeKind.ADD
    if _means_the_same(old, new):
        if old.status == new.status:
            return old, None
        return replace(old, status=new.status), ChangeKind.RECONCILE
    kind = ChangeKind.UPDATE if new.metadata.deletion_timestamp is None else ChangeKind.DELETE
    return replace(old, metadata=_updated_meta(old.metadata, new.metadata), spec=new.spec, status=new.status), kind


def _means_the_same(old: Pod, new: Pod) -> bool:
    return (
        old.spec == new.spec
        and old.metadata.labels == new.metadata.labels
        and old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
        and old.metadata.deletion_grace_period_seconds == new.metadata.deletion_grace_period_seconds
        and _foreign(old.metadata.annotations) == _foreign(new.metadata.annotations)
    )


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


def _in_order(found: Mapping[ChangeKind, list[Pod]], source: str, *, is_first: bool) -> tuple[PodChanges, ...]:
    order = [kind for kind in ChangeKind if found[kind]]
    news = {ChangeKind.ADD, ChangeKind.UPDATE, ChangeKind.DELETE}
    if is_first and not news.intersection(order):
        # Whoever waits for the source to be heard needs something to hear.
        place = order.index(ChangeKind.RECONCILE) if ChangeKind.RECONCILE in order else len(order)
        order.insert(place, ChangeKind.ADD)
    return tuple(PodChanges(kind=kind, source=source, pods=tuple(found[kind])) for kind in order)
