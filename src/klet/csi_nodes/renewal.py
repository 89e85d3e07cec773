"""Gives a Node that was deleted and made again a CSINode with the drivers (upstream: only at a restart)."""

import logging
from datetime import timedelta
from typing import Final

from klet.aio.backoff import Backoff
from klet.aio.clock import Clock
from klet.api.node import Node
from klet.csi.client import CsiConnector
from klet.csi_nodes.drivers import CsiDriverBoard
from klet.csi_nodes.info_manager import NodeInfoManager
from klet.csi_nodes.registration import ask_node_info
from klet.csi_nodes.start import CsiNodeBoard
from klet.errors import KletError, level_for
from klet.kube.informer import Informer

logger = logging.getLogger(__name__)

FIRST_DELAY: Final = timedelta(milliseconds=500)
LONGEST_DELAY: Final = timedelta(minutes=2, seconds=2)


class CsiNodeRenewal:
    """Follows the UID of the Node. What belongs to an older one the garbage collector deletes."""

    def __init__(
        self,
        *,
        nodes: Informer[Node],
        node_name: str,
        manager: NodeInfoManager,
        drivers: CsiDriverBoard,
        connector: CsiConnector,
        start: CsiNodeBoard,
        clock: Clock,
    ) -> None:
        self._nodes = nodes
        self._node_name = node_name
        self._manager = manager
        self._drivers = drivers
        self._connector = connector
        self._start = start
        self._clock = clock
        self._settled = ""
        """The UID of the Node of which all is written."""

    async def run(self) -> None:
        """Follow until cancelled, from the time that there is a CSINode."""
        await self._start.until_initialized()
        self._settled = self._manager.owner
        backoff = Backoff[str](first=FIRST_DELAY, longest=LONGEST_DELAY)
        with self._nodes.changes() as changes:
            while True:
                if self._is_another() and not await self._renew():
                    delay = backoff.next(self._node_name, now=self._clock.now())
                    await self._clock.wait(changes.get(), at_most=delay)
                    continue
                backoff.reset(self._node_name)
                await changes.get()

    def _is_another(self) -> bool:
        node = self._nodes.get(self._node_name)
        return node is not None and node.metadata.uid != self._settled

    async def _renew(self) -> bool:
        """Return whether the Node of now has all that drivers say of it."""
        logger.info("The Node was made again: so is its CSINode", extra={"node": self._node_name})
        try:
            await self._manager.initialize()
        except KletError as error:
            self._failed(error)
            return False
        failed = [name for name in self._drivers.names() if not await self._install(name)]
        if not failed:
            self._settled = self._manager.owner
        return not failed

    async def _install(self, name: str) -> bool:
        driver = self._drivers.find(name)
        try:
            if driver is None:
                return True
            info = await ask_node_info(self._connector, driver)
            if self._drivers.find(name) is driver:
                await self._manager.install(name, info)
        except KletError as error:
            self._failed(error, name)
            return False
        return True

    def _failed(self, error: KletError, driver: str = "") -> None:
        extra = {"node": self._node_name, "driver": driver, "error": str(error)}
        logger.log(level_for(error), "What drivers say of the node is not written again", extra=extra)
