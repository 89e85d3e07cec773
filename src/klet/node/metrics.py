"""Metrics of the node: how long its start took, and whether its runtime is too old for upstream's next releases."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from klet.aio.clock import Clock
from klet.api.node import Node
from klet.metrics import FewValues, Gauge, MetricRegistry
from klet.node.board import NodeBoard
from klet.node.first_contact import FirstContact

LOST_IN: Final = "1.36.0"
"""The release of upstream that no longer supports runtimes which do not report their cgroup driver."""


def register_contact(registry: MetricRegistry, contact: FirstContact) -> None:
    def losing() -> dict[tuple[str, ...], float]:
        found = contact.found
        return {(LOST_IN,): 1} if found is not None and found.is_losing_support else {}

    registry.computed(
        "kubelet_cri_losing_support",
        "1 if the runtime is too old for that release.",
        losing,
        (FewValues("version", 1),),
    )


class StartupTimes:
    """Measures the steps from the boot of the machine to a node that is ready (upstream: NodeStartupLatencyTracker).

    As upstream, only a node that is new to the API server counts; of one that is adopted all times are 0.
    """

    def __init__(
        self,
        *,
        registry: MetricRegistry,
        board: NodeBoard,
        booted_at: Callable[[], datetime | None],
        started_at: datetime,
        clock: Clock,
    ) -> None:
        self._board = board
        self._booted_at = booted_at
        self._started_at = started_at
        self._clock = clock
        self._tried_at: datetime | None = None
        self._registered_at: datetime | None = None
        self._before_start = _gauge(registry, "pre_kubelet_", "From the boot of the machine to the start of the agent.")
        self._before_try = _gauge(
            registry, "pre_registration_", "From the start of the agent to the first try to register the node."
        )
        self._registration = _gauge(registry, "registration_", "From that try to the registered node.")
        self._after = _gauge(registry, "post_registration_", "From the registered node to one that is ready.")
        self._whole = _gauge(registry, "", "From the boot of the machine to a node that is ready.")

    def note_try(self) -> None:
        """Note that the node is about to be registered."""
        self._tried_at = self._tried_at or self._clock.now()

    def note_new(self) -> None:
        """Note that a node was registered which the API server did not know."""
        if self._tried_at is None or self._registered_at is not None:
            return
        self._registered_at = self._clock.now()
        if (booted_at := self._booted_at()) is not None:
            self._before_start.set((self._started_at - booted_at).total_seconds())
        self._before_try.set((self._tried_at - self._started_at).total_seconds())
        self._registration.set((self._registered_at - self._tried_at).total_seconds())

    async def run(self) -> None:
        """Wait until the node is ready."""
        with self._board.changes() as changes:
            while self._registered_at is None or not is_ready(self._board.node):
                await changes.get()
        now = self._clock.now()
        self._after.set((now - self._registered_at).total_seconds())
        if (booted_at := self._booted_at()) is not None:
            self._whole.set((now - booted_at).total_seconds())


def is_ready(node: Node | None) -> bool:
    conditions = node.status.conditions if node is not None else ()
    return any(each.type == "Ready" and each.status == "True" for each in conditions)


def _gauge(registry: MetricRegistry, step: str, about: str) -> Gauge:
    return registry.gauge(f"kubelet_node_startup_{step}duration_seconds", about)
