"""What the node has to tell about itself. Decisions and messages are upstream's event reasons and texts, so that an
event recorder can hand them on as they are; those in `WARNINGS` are events of type Warning, the others Normal.
"""

from typing import Final

from klet.model.causes import Finding, Subject

DECIDER: Final = "node.status"

STARTING: Final = "Starting"
REBOOTED: Final = "Rebooted"
CGROUP_V1: Final = "CgroupV1"
NODE_READY: Final = "NodeReady"
NODE_NOT_READY: Final = "NodeNotReady"
NODE_SCHEDULABLE: Final = "NodeSchedulable"
NODE_NOT_SCHEDULABLE: Final = "NodeNotSchedulable"

WARNINGS: Final = frozenset({REBOOTED, CGROUP_V1})
STATUS_REASONS: Final = frozenset(
    {
        NODE_READY,
        NODE_NOT_READY,
        NODE_SCHEDULABLE,
        NODE_NOT_SCHEDULABLE,
        "NodeHasInsufficientMemory",
        "NodeHasSufficientMemory",
        "NodeHasDiskPressure",
        "NodeHasNoDiskPressure",
        "NodeHasInsufficientPID",
        "NodeHasSufficientPID",
    }
)
NODE_EVENTS: Final = STATUS_REASONS | WARNINGS | {STARTING}
"""Every decision of this package that is an event on the Node."""

_CGROUP_V1_TEXT: Final = (
    "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. "
    "Please migrate to cgroup v2. "
    "More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1"
)


def find_starting() -> Finding:
    return _about_node(STARTING, "Starting kubelet.")


def find_cgroup_v1() -> Finding:
    return _about_node(CGROUP_V1, _CGROUP_V1_TEXT)


def find_status_change(node: str, reason: str, *, why: str = "") -> Finding:
    """One of `STATUS_REASONS`; `why` goes to the journal alone."""
    measurements = {"why": why} if why else {}
    return Finding(
        subject=Subject(),
        decider=DECIDER,
        decision=reason,
        message=f"Node {node} status is now: {reason}",
        measurements=measurements,
    )


def find_reboot(node: str, boot_id: str) -> Finding:
    return _about_node(REBOOTED, f"Node {node} has been rebooted, boot id: {boot_id}")


def _about_node(decision: str, message: str) -> Finding:
    return Finding(subject=Subject(), decider=DECIDER, decision=decision, message=message)
