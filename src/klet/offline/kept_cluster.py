"""Keeps what else pods need to start: the node's own object, services, runtime classes and trust bundles."""

import logging
from datetime import timedelta
from typing import Final, Protocol

from klet.aio.clock import Clock
from klet.checkpoint import CheckpointError
from klet.kube.node_informers import NodeInformers
from klet.offline.plan import choose_bundles_shown, choose_pods, choose_services, lasting_node
from klet.offline.snapshot import KeptCluster, SnapshotStore

logger = logging.getLogger(__name__)

EVERY: Final = timedelta(seconds=5)


class ClusterSource(Protocol):
    """The cluster objects that pods depend on, as the API server last sent them."""

    async def until_known(self) -> None: ...

    def current(self) -> KeptCluster: ...


class FollowedCluster:
    """What pods of this node need besides themselves, as the informers show it."""

    def __init__(self, *, informers: NodeInformers, node_name: str, kept: KeptCluster | None, clock: Clock) -> None:
        self._informers = informers
        self._node_name = node_name
        self._kept_bundles = () if kept is None else kept.trust_bundles
        self._clock = clock

    async def until_known(self) -> None:
        await self._informers.node.until_synced()
        await self._informers.services.until_synced()
        await self._informers.runtime_classes.until_synced()
        await self._informers.pods.until_synced()

    def current(self) -> KeptCluster:
        informers = self._informers
        pods = choose_pods(informers.pods.all())
        # Before a pod of this run has asked for one, those of the previous run count.
        bundles = informers.trust_bundles.all() if informers.trust_bundles.is_synced else self._kept_bundles
        return KeptCluster(
            node_name=self._node_name,
            at=self._clock.now(),
            nodes=informers.node.all(),
            services=choose_services(informers.services.all(), pods),
            runtime_classes=informers.runtime_classes.all(),
            trust_bundles=choose_bundles_shown(bundles, pods),
        )


class ClusterKeeper:
    """Looks at them every few seconds: they change seldom, and nothing is begun because of them alone."""

    def __init__(
        self, *, store: SnapshotStore[KeptCluster], followed: ClusterSource, kept: KeptCluster | None, clock: Clock
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


def _is_same(kept: KeptCluster | None, current: KeptCluster) -> bool:
    return kept is not None and _lasting(kept) == _lasting(current)


def _lasting(value: KeptCluster) -> tuple[object, ...]:
    nodes = tuple(map(lasting_node, value.nodes))
    return value.node_name, nodes, value.services, value.runtime_classes, value.trust_bundles
