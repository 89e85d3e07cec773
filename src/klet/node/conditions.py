"""The conditions of the node and the findings of their changes (upstream: the pressure and Ready setters). Pure.

NetworkUnavailable is not among them: it belongs to the network plugin.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from klet.api.node import NodeCondition
from klet.api.times import Time
from klet.model.causes import Finding
from klet.model.conditions import FALSE, READY, TRUE, UNKNOWN
from klet.model.error_text import join_errors
from klet.model.pod_resources import EPHEMERAL_STORAGE
from klet.model.reasons import Reason
from klet.node.capacity import REQUIRED, Resources
from klet.node.findings import find_status_change

Conditions = tuple[NodeCondition, ...]


class _Words(Struct, frozen=True):
    """The texts of one state of a pressure condition."""

    status: str
    reason: str
    message: str
    event: Reason


class _Pressure(Struct, frozen=True):
    type: str
    present: _Words
    absent: _Words


PRESSURES: Final = (
    _Pressure(
        "MemoryPressure",
        _Words(
            TRUE,
            "KubeletHasInsufficientMemory",
            "kubelet has insufficient memory available",
            Reason.NODE_HAS_INSUFFICIENT_MEMORY,
        ),
        _Words(
            FALSE,
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
            Reason.NODE_HAS_SUFFICIENT_MEMORY,
        ),
    ),
    _Pressure(
        "DiskPressure",
        _Words(TRUE, "KubeletHasDiskPressure", "kubelet has disk pressure", Reason.NODE_HAS_DISK_PRESSURE),
        _Words(FALSE, "KubeletHasNoDiskPressure", "kubelet has no disk pressure", Reason.NODE_HAS_NO_DISK_PRESSURE),
    ),
    _Pressure(
        "PIDPressure",
        _Words(
            TRUE,
            "KubeletHasInsufficientPID",
            "kubelet has insufficient PID available",
            Reason.NODE_HAS_INSUFFICIENT_PID,
        ),
        _Words(
            FALSE, "KubeletHasSufficientPID", "kubelet has sufficient PID available", Reason.NODE_HAS_SUFFICIENT_PID
        ),
    ),
)


class Changed(Struct, frozen=True):
    """The new conditions, and the findings of their changes."""

    conditions: Conditions
    findings: tuple[Finding, ...] = ()


def set_pressures(before: Conditions, pressures: frozenset[str], *, node: str, now: Time) -> Changed:
    """Set the three pressure conditions. Their reasons and times change with their statuses only."""
    conditions, findings = before, []
    for kind in PRESSURES:
        words = kind.present if kind.type in pressures else kind.absent
        found = find_condition(before, kind.type) or NodeCondition(type=kind.type, status=UNKNOWN)
        if found.status != words.status:
            found = replace(
                found,
                status=words.status,
                reason=words.reason,
                message=words.message,
                last_transition_time=now,
            )
            findings.append(find_status_change(node, words.event))
        conditions = put_condition(conditions, replace(found, last_heartbeat_time=now))
    return Changed(conditions, tuple(findings))


def set_ready(
    before: Conditions, errors: tuple[str, ...], warnings: tuple[str, ...], *, node: str, now: Time
) -> Changed:
    """Set the Ready condition. Its message is always the newest: it names what is wrong."""
    ready = NodeCondition(
        type=READY,
        status=FALSE if errors else TRUE,
        reason="KubeletNotReady" if errors else "KubeletReady",
        message=describe_readiness(errors, warnings),
        last_heartbeat_time=now,
        last_transition_time=now,
    )
    was = find_condition(before, READY)
    if was is None:
        return Changed((*before, ready))
    if was.status == ready.status:
        return Changed(put_condition(before, replace(ready, last_transition_time=was.last_transition_time)))
    finding = find_status_change(node, Reason.NODE_NOT_READY if errors else Reason.NODE_READY, why=ready.message)
    return Changed(put_condition(before, ready), (finding,))


def find_missing_capacity(capacity: Resources, *, counts_storage: bool) -> Iterator[str]:
    """Yield an error if a required capacity is unknown."""
    required = (*REQUIRED, EPHEMERAL_STORAGE) if counts_storage else REQUIRED
    if missing := [name for name in required if name not in capacity]:
        yield f"missing node capacity for resources: {', '.join(missing)}"


def describe_readiness(errors: tuple[str, ...], warnings: tuple[str, ...]) -> str:
    message = join_errors(errors) if errors else "kubelet is posting ready status"
    return f"{message}. WARNING: {join_errors(warnings)}" if warnings else message


def find_condition(conditions: Conditions, kind: str) -> NodeCondition | None:
    return next((condition for condition in conditions if condition.type == kind), None)


def is_ready(conditions: Conditions) -> bool:
    found = find_condition(conditions, READY)
    return found is not None and found.status == TRUE


def put_condition(conditions: Conditions, new: NodeCondition) -> Conditions:
    """Return the conditions with `new` instead of the one of its type, or at the end."""
    if find_condition(conditions, new.type) is None:
        return (*conditions, new)
    return tuple(new if condition.type == new.type else condition for condition in conditions)
