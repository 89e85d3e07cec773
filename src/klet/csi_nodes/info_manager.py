"""Writes what the drivers of this node say to its Node and CSINode (upstream: the node info manager)."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Final

from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.node import Node
from klet.api.storage import CSINode
from klet.csi.client import CsiNodeInfo
from klet.csi_nodes.errors import CsiNodeError
from klet.csi_nodes.node_objects import (
    Unusable,
    build_csi_node,
    build_csi_node_patch,
    build_node_patch,
    drop_driver,
    drop_driver_from_node,
    is_owned_by,
    mark_migrated,
    name_driver_on_node,
    put_driver,
    set_volume_count,
)
from klet.errors import KletError
from klet.kube.client import KubeClient
from klet.kube.errors import NotFound
from klet.model.error_text import join_errors

logger = logging.getLogger(__name__)

GAVE_UP: Final = "timed out waiting for the condition"


class RetrySteps(Struct, frozen=True):
    """How often something is tried, and the pauses in between."""

    tries: int
    first: timedelta
    factor: int
    jitter: float = 0.1

    def pauses(self, randomness: random.Random) -> Iterator[timedelta]:
        """Yield the pause after each try but the last."""
        for number in range(self.tries - 1):
            yield self.first * self.factor**number * (1 + self.jitter * randomness.random())


WRITES: Final = RetrySteps(tries=4, first=timedelta(milliseconds=10), factor=5)


class NodeInfoManager:
    """Changes both objects, one change after the other: the annotation of the Node is one text for all drivers."""

    def __init__(self, *, client: KubeClient, node_name: str, clock: Clock, randomness: random.Random) -> None:
        self._client = client
        self._node_name = node_name
        self._clock = clock
        self._randomness = randomness
        self._owner = ""
        """The UID of the Node that the CSINode must belong to."""
        self._turn = asyncio.Lock()

    @property
    def owner(self) -> str:
        """Return the UID of the Node that the CSINode belongs to; empty before there is one."""
        return self._owner

    async def initialize(self) -> None:
        """Have a CSINode that belongs to this Node. Must come before any driver; raises KletError."""
        self._owner = (await self._client.get(Node, self._node_name)).metadata.uid
        await self._change_csi_node(mark_migrated, "error updating CSINode annotation")

    async def install(self, driver: str, info: CsiNodeInfo) -> None:
        """Write what a driver says of this node (upstream: `InstallCSIDriver`); raises CsiNodeError."""
        if not info.node_id:
            raise CsiNodeError("error adding CSI driver node info: driverNodeID must not be empty")
        if info.max_volumes < 0:
            extra = {"driver": driver, "count": info.max_volumes}
            logger.error("Invalid attach limit value cannot be added to CSINode object", extra=extra)
        await self._change_node(
            lambda node: name_driver_on_node(node, driver, info),
            "error updating Node object with CSI driver node info: error updating node",
        )
        await self._change_csi_node(
            lambda found: put_driver(found, driver, info),
            "error updating CSINode object with CSI driver node info: error updating CSINode",
        )

    async def uninstall(self, driver: str) -> None:
        """Remove what a driver said, without its labels (upstream: `UninstallCSIDriver`); raises CsiNodeError."""
        await self._retry(
            lambda: self._try_dropping(driver),
            "error uninstalling CSI driver from CSINode object error updating CSINode",
        )
        await self._change_node(
            lambda node: drop_driver_from_node(node, driver),
            "error removing CSI driver node info from Node object error updating node",
        )

    async def refresh(self, driver: str, info: CsiNodeInfo) -> None:
        """Write how many volumes of a driver this node can have now; the Node stays. Raises CsiNodeError."""
        await self._retry(lambda: self._try_counting(driver, info), "error updating CSINode")

    async def _change_node(self, change: Callable[[Node], Node | Unusable], failure: str) -> None:
        await self._retry(lambda: self._try_node(change), failure)

    async def _change_csi_node(self, change: Callable[[CSINode], CSINode], failure: str) -> None:
        await self._retry(lambda: self._try_csi_node(change), failure)

    async def _retry(self, attempt: Callable[[], Awaitable[None]], failure: str) -> None:
        pauses = WRITES.pauses(self._randomness)
        errors: list[str] = []
        while True:
            try:
                async with self._turn:
                    await attempt()
            except KletError as error:
                errors.append(str(error))
                pause = next(pauses, None)
                if pause is None:
                    raise CsiNodeError(f"{failure}: {GAVE_UP}; caused by: {join_errors(errors)}") from error
            else:
                return
            await self._clock.sleep(pause)

    async def _try_node(self, change: Callable[[Node], Node | Unusable]) -> None:
        node = await self._client.get(Node, self._node_name)
        changed = change(node)
        if isinstance(changed, Unusable):
            raise CsiNodeError(changed.why)
        if patch := build_node_patch(node, changed):
            await self._client.patch(Node, self._node_name, patch=patch, subresource="status")

    async def _try_csi_node(self, change: Callable[[CSINode], CSINode]) -> None:
        await self._write(await self._get_own_or_create(), change)

    async def _try_dropping(self, driver: str) -> None:
        try:
            found = await self._client.get(CSINode, self._node_name)
        except NotFound:
            return
        await self._write(found, lambda csi_node: drop_driver(csi_node, driver))

    async def _try_counting(self, driver: str, info: CsiNodeInfo) -> None:
        found = await self._client.get(CSINode, self._node_name)
        await self._write(found, lambda csi_node: set_volume_count(csi_node, driver, info))

    async def _get_own_or_create(self) -> CSINode:
        try:
            found = await self._client.get(CSINode, self._node_name)
        except NotFound:
            return await self._client.create(build_csi_node(self._node_name, self._owner))
        if is_owned_by(found, self._node_name, self._owner):
            return found
        # It is of an older Node of this name, and the garbage collector is about to delete it.
        logger.info("Deleting the CSINode of another Node", extra={"node": self._node_name})
        await self._client.delete(CSINode, self._node_name, uid=found.metadata.uid)
        raise CsiNodeError(f"CSINode {self._node_name} belonged to another Node and was deleted")

    async def _write(self, found: CSINode, change: Callable[[CSINode], CSINode]) -> None:
        if patch := build_csi_node_patch(found, change(found)):
            await self._client.patch(CSINode, self._node_name, patch=patch)
