"""Keeps what else pods need to start: the node's own object, services, runtime classes and trust bundles."""

import logging
from datetime import timedelta
from typing import Final, Protocol

from klet.aio.clock import Clock
from klet.checkpoint import CheckpointError
from klet.offline.plan import lasting_node
from klet.offline.snapshot import Surroundings

logger = logging.getLogger(__name__)

EVERY: Final = timedelta(seconds=5)


class SurroundingsStore(Protocol):
    """Where they outlive the agent."""

    async def save(self, value: Surroundings) -> None:
        """Returns when they are there; raises CheckpointError."""
        ...


class Followed(Protocol):
    """The surroundings, as the API server tells them."""

    async def until_known(self) -> None: ...

    def current(self) -> Surroundings: ...


class SurroundingsKeeper:
    """Looks at them every few seconds: they change seldom, and nothing is begun because of them alone."""

    def __init__(
        self, *, store: SurroundingsStore, followed: Followed, kept: Surroundings | None, clock: Clock
    ) -> None:
        self._store = store
        self._followed = followed
        self._kept = kept
        self._clock = clock

    async def run(self) -> None:
        await self._followed.until_known()
        while True:
            current = self._followed.current()
            if not _is_same(self._kept, current):
                try:
                    await self._store.save(current)
                except CheckpointError as error:
                    logger.warning("The surroundings of pods are not kept", extra={"error": str(error)})
                else:
                    self._kept = current
            await self._clock.sleep(EVERY)


def _is_same(kept: Surroundings | None, current: Surroundings) -> bool:
    return kept is not None and _lasting(kept) == _lasting(current)


def _lasting(value: Surroundings) -> tuple[object, ...]:
    nodes = tuple(map(lasting_node, value.nodes))
    return value.node_name, nodes, value.services, value.runtime_classes, value.trust_bundles
