"""Whether a volume that has grown is expanded on the node, and what becomes of its claim (NodeExpander). Pure.

The controller has made the volume larger; the filesystem follows here. Two ways: claims whose status has allocated
resources say themselves where the expansion stands, so that a failed one can be recovered from; all others only have
their capacity updated.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from klet.api.claim import PersistentVolumeClaim
from klet.api.quantity import Quantity
from klet.api.times import Time
from klet.volumes.plugins.base import Expansion, ExpansionOutcome

STORAGE: Final = "storage"
NOT_REQUIRED: Final = "volume.kubernetes.io/node-expansion-not-required"
READ_WRITE_MANY: Final = "ReadWriteMany"
NODE_RESIZE_ERROR: Final = "NodeResizeError"
_RESIZE_CONDITIONS: Final = frozenset({
    "Resizing", "FileSystemResizePending", "ControllerResizeError", NODE_RESIZE_ERROR,
})  # fmt: skip

Patch = Mapping[str, Any]


class ResizeStatus(StrEnum):
    """Where an expansion stands, as the status of a claim says."""

    PENDING = "NodeResizePending"
    IN_PROGRESS = "NodeResizeInProgress"
    INFEASIBLE = "NodeResizeInfeasible"


class ExpansionPlan(Struct, frozen=True, kw_only=True):
    """What to do about a volume that has grown."""

    new_size: Quantity
    is_allowed: bool
    """Ask the plugin."""
    recovers: bool
    """The claim's status says where the expansion stands."""
    is_claim_updated: bool = False
    """The claim has the new size already: another node has expanded the volume."""
    marks_infeasible: bool = False
    """It has failed for good before, and the user wants another size by now."""


class ExpansionEnd(Struct, frozen=True, kw_only=True):
    """What became of an expansion."""

    is_finished: bool
    error: str = ""
    """Why the operation fails; empty if it does not."""
    is_reported: bool = False
    """It is an Event of the pod and of the claim."""
    patch: Patch | None = None
    """Of the claim's status."""
    must_be_patched: bool = False
    """Without the patch the operation fails, too."""
    is_final_error: bool = False
    grows_unused_only: bool = False


def plan_expansion(claim: PersistentVolumeClaim, *, size: Quantity, has_failed: bool) -> ExpansionPlan:
    """Return what to do about a volume of a claim. `size` is that of the PersistentVolume.

    `has_failed` is whether expanding it has ended with a final error in this run of the agent.
    """
    status = claim.status.allocated_resource_statuses.get(STORAGE, "")
    allocated = claim.status.allocated_resources.get(STORAGE)
    if not status and allocated is None:
        return ExpansionPlan(new_size=size, is_allowed=True, recovers=False)
    new_size = allocated if allocated is not None else size
    is_updated = not status and not _is_less(claim.status.capacity.get(STORAGE), new_size)
    storage = claim.spec
    requested = storage.resources.requests.get(STORAGE)
    shared = READ_WRITE_MANY in storage.access_modes and NOT_REQUIRED not in claim.metadata.annotations
    return ExpansionPlan(
        new_size=new_size,
        is_allowed=(is_updated and shared) or status in {ResizeStatus.PENDING, ResizeStatus.IN_PROGRESS},
        recovers=True,
        is_claim_updated=is_updated,
        marks_infeasible=has_failed and requested != new_size,
    )


def is_smaller(claim: PersistentVolumeClaim, size: Quantity) -> bool:
    """Return whether a claim's status has less than the volume: then its filesystem may have to grow."""
    return _is_less(claim.status.capacity.get(STORAGE), size)


def decide_end(
    plan: ExpansionPlan, expansion: Expansion, claim: PersistentVolumeClaim, *, now: datetime
) -> ExpansionEnd:
    """Return what follows from what the plugin says."""
    match expansion.outcome:
        case ExpansionOutcome.FINISHED:
            is_due = not plan.is_claim_updated if plan.recovers else is_smaller(claim, plan.new_size)
            patch = patch_finished(claim, plan.new_size) if is_due else None
            return ExpansionEnd(is_finished=True, is_reported=True, patch=patch, must_be_patched=True)
        case ExpansionOutcome.TRANSIENT:
            return ExpansionEnd(is_finished=False, error=expansion.error)
        case ExpansionOutcome.NOT_SUPPORTED if plan.is_claim_updated or not plan.recovers:
            return ExpansionEnd(is_finished=True)
        case _:
            pass
    is_in_use = expansion.outcome is ExpansionOutcome.IN_USE
    if not plan.recovers:
        return ExpansionEnd(
            is_finished=is_in_use, grows_unused_only=is_in_use, error="" if is_in_use else expansion.error
        )
    is_infeasible = expansion.outcome is ExpansionOutcome.INFEASIBLE or plan.marks_infeasible
    return ExpansionEnd(
        is_finished=False,
        grows_unused_only=is_in_use,
        error="" if is_in_use else expansion.error,
        patch=patch_failed(claim, expansion.error, is_infeasible=is_infeasible, now=now),
        is_final_error=True,
    )


def patch_begun(claim: PersistentVolumeClaim) -> Patch:
    """Return the patch of the status of a claim whose volume is being expanded."""
    return _versioned(claim, {"allocatedResourceStatuses": {STORAGE: str(ResizeStatus.IN_PROGRESS)}})


def patch_finished(claim: PersistentVolumeClaim, size: Quantity) -> Patch:
    """Return the patch of the status of a claim whose volume has grown."""
    status: dict[str, Any] = {"capacity": {STORAGE: str(size)}}
    if STORAGE in claim.status.allocated_resource_statuses:
        status["allocatedResourceStatuses"] = {STORAGE: None}
    over = [each.type for each in claim.status.conditions if each.type in _RESIZE_CONDITIONS]
    if over:
        status["conditions"] = [{"$patch": "delete", "type": type_} for type_ in over]
    return _versioned(claim, status)


def patch_failed(claim: PersistentVolumeClaim, error: str, *, is_infeasible: bool, now: datetime) -> Patch:
    """Return the patch of the status of a claim whose volume does not grow, whatever its version is by now."""
    status: dict[str, Any] = {}
    if is_infeasible:
        status["allocatedResourceStatuses"] = {STORAGE: str(ResizeStatus.INFEASIBLE)}
    known = any(each.type == NODE_RESIZE_ERROR and each.status == "True" for each in claim.status.conditions)
    if not known:
        status["conditions"] = [{
            "type": NODE_RESIZE_ERROR,
            "status": "True",
            "lastTransitionTime": Time.of(now).wire(),
            "message": f"failed to expand pvc with {error}",
        }]  # fmt: skip
    return {"status": status} if status else {}


def _versioned(claim: PersistentVolumeClaim, status: Mapping[str, Any]) -> Patch:
    return {"metadata": {"resourceVersion": claim.metadata.resource_version}, "status": status}


def _is_less(size: Quantity | None, wanted: Quantity) -> bool:
    return (size or Quantity()) < wanted
