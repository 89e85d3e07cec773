"""What the admitted pods take of the node, summed up. A pod is computed again only when it has changed."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from klet.admission.resource_fit import Amounts, compute_used
from klet.api.pod import Pod, PodStatus
from klet.model.allocation import PodAllocation
from klet.model.roles import Allocations


class _Load(Struct, frozen=True, gc=False):
    """What one pod takes, and what that was computed from."""

    allocation: PodAllocation
    status: PodStatus
    amounts: Amounts


class PodLoads:
    """The sums. Hundreds of pods may be admitted at once, and each is compared with all before it."""

    def __init__(self, *, allocations: Allocations, status_of: Callable[[Pod], PodStatus]) -> None:
        self._allocations = allocations
        self._status_of = status_of
        self._loads: dict[str, _Load] = {}

    def sum_up(self, others: Sequence[Pod]) -> Amounts:
        """Return what these pods take together."""
        loads: dict[str, _Load] = {}
        used: dict[str, int] = {}
        for other in others:
            loads[other.metadata.uid] = load = self._load(other)
            for name, amount in load.amounts.items():
                used[name] = used.get(name, 0) + amount
        # Those that are gone are forgotten.
        self._loads = loads
        return used

    def _load(self, pod: Pod) -> _Load:
        known = self._loads.get(pod.metadata.uid)
        allocation, status = self._allocations.of(pod), self._status_of(pod)
        if known is not None and known.allocation is allocation and known.status is status:
            return known
        return _Load(allocation, status, compute_used(allocation, status))
