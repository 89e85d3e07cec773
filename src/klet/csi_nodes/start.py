"""Has a CSINode of this Node before any driver is registered; until then the node is not ready."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from klet.aio.broadcast import Broadcast, Subscription
from klet.aio.clock import Clock
from klet.api.storage import CSINode
from klet.csi_nodes.errors import CsiNodeError
from klet.csi_nodes.info_manager import NodeInfoManager, RetrySteps
from klet.errors import KletError, level_for
from klet.kube.client import KubeClient
from klet.kube.errors import KubeError, NotFound

logger = logging.getLogger(__name__)

ASK: Final = timedelta(seconds=1)
"""How often it is looked whether the API server is there."""
TRIES: Final = RetrySteps(tries=6, first=timedelta(milliseconds=30), factor=8)


class CsiNodeBoard:
    """Whether this node has its CSINode. Written by CsiNodeStart only."""

    def __init__(self) -> None:
        self._error: str | None = "CSINode is not yet initialized"
        self._done = asyncio.Event()
        self._changes = Broadcast[None]()

    def error(self) -> str | None:
        """Return why the node is not ready for volumes."""
        return self._error

    def put(self, error: str | None) -> None:
        if error != self._error:
            self._error = error
            self._changes.send(None)
        if error is None:
            self._done.set()

    async def until_initialized(self) -> None:
        await self._done.wait()

    def changes(self) -> Subscription[None]:
        """Subscribe to changes of the error."""
        return self._changes.subscribe()


class CsiNodeStart:
    """Makes the CSINode, once after the start of the agent and the registration of its Node."""

    def __init__(
        self,
        *,
        client: KubeClient,
        manager: NodeInfoManager,
        board: CsiNodeBoard,
        until_node: Callable[[], Awaitable[None]],
        node_name: str,
        clock: Clock,
        randomness: random.Random,
    ) -> None:
        self._client = client
        self._manager = manager
        self._board = board
        self._until_node = until_node
        self._node_name = node_name
        self._clock = clock
        self._randomness = randomness

    async def run(self) -> None:
        """Make the CSINode. If the API server is there and refuses it again and again, the agent ends, as upstream.

        While the API server is away no try counts: pods of this node go on without it.
        """
        await self._until_node()
        pauses = TRIES.pauses(self._randomness)
        while (error := await self._try()) is not None:
            if level_for(error) == logging.DEBUG:
                await self._until_api_server()
                continue
            pause = next(pauses, None)
            if pause is None:
                raise CsiNodeError(f"failed to initialize CSINode after retrying: {error}") from error
            await self._clock.sleep(pause)
        self._board.put(None)

    async def _try(self) -> KletError | None:
        try:
            await self._manager.initialize()
        except KletError as error:
            self._board.put(f"failed to initialize CSINode: {error}")
            logger.log(level_for(error), "CSINode not initialized", extra={"error": str(error)})
            return error
        return None

    async def _until_api_server(self) -> None:
        """Return once the API server answers about CSINodes, even if it has none of this node."""
        while not await self._answers():
            await self._clock.sleep(ASK)

    async def _answers(self) -> bool:
        try:
            await self._client.get(CSINode, self._node_name, resource_version="0")
        except NotFound:
            return True
        except KubeError as error:
            logger.log(level_for(error), "CSINode not read", extra={"error": str(error)})
            return False
        return True
