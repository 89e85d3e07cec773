"""What the node reports of itself: upstream's event reasons and texts, which become Events as they are."""

from collections.abc import Iterator
from typing import Final

from klet.host.machine.info import MachineInfo
from klet.model.causes import Finding, FindingSubject
from klet.model.reasons import Reason

DECIDER: Final = "node.status"

_CGROUP_V1_TEXT: Final = (
    "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. "
    "Please migrate to cgroup v2. "
    "More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1"
)

_NO_NOSWAP_TEXT: Final = (
    "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) "
    "might be swapped to disk and should no longer be considered secure."
)


def find_start(machine: MachineInfo, *, noswap: bool) -> Iterator[Finding]:
    """Yield what a node reports when it starts: that it does, and what users should know of its machine.

    `noswap` says whether tmpfs volumes can be kept out of swap.
    """
    yield find_starting()
    if machine.cgroup_version == 1:
        yield find_cgroup_v1()
    if machine.has_swap and not noswap:
        yield _about_node(Reason.POSSIBLE_MEMORY_BACKED_VOLUMES_ON_DISK, _NO_NOSWAP_TEXT)


def find_starting() -> Finding:
    return _about_node(Reason.STARTING, "Starting kubelet.")


def find_cgroup_v1() -> Finding:
    return _about_node(Reason.CGROUP_V1, _CGROUP_V1_TEXT)


def find_status_change(node: str, reason: Reason, *, why: str = "") -> Finding:
    """Return the finding of a change of readiness, scheduling or pressure; `why` goes to the journal alone."""
    measurements = {"why": why} if why else {}
    return Finding(
        subject=FindingSubject(),
        decider=DECIDER,
        decision=reason,
        message=f"Node {node} status is now: {reason}",
        measurements=measurements,
    )


def find_reboot(node: str, boot_id: str) -> Finding:
    return _about_node(Reason.REBOOTED, f"Node {node} has been rebooted, boot id: {boot_id}")


def _about_node(decision: Reason, message: str) -> Finding:
    return Finding(subject=FindingSubject(), decider=DECIDER, decision=decision, message=message)
