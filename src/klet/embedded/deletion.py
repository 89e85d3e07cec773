"""When a deletion takes effect (graceful deletion of pods, finalizers of everything else). Pure."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from msgspec import Struct

from klet.api.times import Time


class Remove(Struct, frozen=True):
    """Nothing holds the object any more."""


class Mark(Struct, frozen=True):
    """The object stays, and is being deleted until this instant."""

    at: datetime
    period: int


class AlreadyDeleting(Struct, frozen=True):
    """It is being deleted already, and no later than asked."""


DeletionVerdict: TypeAlias = Remove | Mark | AlreadyDeleting
_ENDED = frozenset({"Succeeded", "Failed"})


def decide_pod_deletion(pod: Mapping[str, Any], requested: int | None, *, now: datetime) -> DeletionVerdict:
    """Return what a DELETE of a pod does; the kubelet's own has a period of zero."""
    metadata, held = pod["metadata"], bool(pod["metadata"].get("finalizers"))
    stored = metadata.get("deletionGracePeriodSeconds")
    if metadata.get("deletionTimestamp") is None:
        period = _first_period(pod, requested)
        return Mark(now + timedelta(seconds=period), period) if period or held else Remove()
    current = 1 if stored is not None and stored < 0 else stored or 0
    wanted = current if requested is None else (1 if requested < 0 else requested)
    if current == 0 or wanted == 0:
        if not held:
            return Remove()
        return AlreadyDeleting() if current == 0 else Mark(now, 0)
    if wanted >= current:
        return AlreadyDeleting()
    at = Time.parse(metadata["deletionTimestamp"]) - timedelta(seconds=current) + timedelta(seconds=wanted)
    return Mark(at, wanted) if at > now else Mark(now, 1)


def decide_deletion(obj: Mapping[str, Any], *, now: datetime) -> DeletionVerdict:
    """Return what a DELETE of anything else does: only finalizers hold it."""
    metadata = obj["metadata"]
    if not metadata.get("finalizers"):
        return Remove()
    return AlreadyDeleting() if metadata.get("deletionTimestamp") is not None else Mark(now, 0)


def marked(obj: Mapping[str, Any], mark: Mark) -> dict[str, Any]:
    """Return the object marked as deleted. Beginning to delete a pod is a change of what is wanted of it."""
    metadata = dict(obj["metadata"])
    if "generation" in metadata and "deletionTimestamp" not in metadata:
        metadata["generation"] += 1
    metadata["deletionTimestamp"] = Time.of(mark.at).wire()
    metadata["deletionGracePeriodSeconds"] = mark.period
    return {**obj, "metadata": metadata}


def _first_period(pod: Mapping[str, Any], requested: int | None) -> int:
    spec = pod.get("spec", {})
    period = spec.get("terminationGracePeriodSeconds", 0) if requested is None else requested
    if not spec.get("nodeName") or pod.get("status", {}).get("phase") in _ENDED:
        return 0
    return 1 if period < 0 else int(period)
