"""Hands the node's pod CIDRs to their users: the runtime, and klet's own bridge network if that is used."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final, Protocol

from klet.aio.clock import Clock
from klet.errors import KletError
from klet.wire import cri_v1_pb2 as cri

logger = logging.getLogger(__name__)

RETRY: Final = timedelta(seconds=10)


class CidrUser(Protocol):
    """A part that makes addresses of the CIDRs; raises KletError if it could not take them."""

    async def use(self, cidrs: tuple[str, ...]) -> None: ...


class RuntimeConfigCall(Protocol):
    """The part of the runtime that takes its configuration."""

    async def update_runtime_config(
        self, request: cri.UpdateRuntimeConfigRequest
    ) -> cri.UpdateRuntimeConfigResponse: ...


class RuntimeCidrs:
    """Passes the CIDRs to the runtime, which may have a template for its network."""

    def __init__(self, *, runtime: RuntimeConfigCall) -> None:
        self._runtime = runtime

    async def use(self, cidrs: tuple[str, ...]) -> None:
        network = cri.NetworkConfig(pod_cidr=",".join(cidrs))
        request = cri.UpdateRuntimeConfigRequest(runtime_config=cri.RuntimeConfig(network_config=network))
        await self._runtime.update_runtime_config(request)


class PodCidrs:
    """Remembers which CIDRs are in use."""

    def __init__(self, *, users: Sequence[CidrUser]) -> None:
        self._users = users
        self._used: tuple[str, ...] = ()

    async def apply(self, cidrs: tuple[str, ...]) -> bool:
        """Pass them on if they are new; return True if so. After a failure all users get them again next time."""
        if not cidrs or cidrs == self._used:
            return False
        try:
            for user in self._users:
                await user.use(cidrs)
        except KletError as error:
            logger.warning("Pod CIDRs not taken", extra={"cidrs": ",".join(cidrs), "error": str(error)})
            return True
        logger.info("Pod CIDRs in use", extra={"cidrs": ",".join(cidrs), "before": ",".join(self._used)})
        self._used = cidrs
        return True


class ConfiguredCidrs:
    """Hands over the pod CIDRs of the configuration, on a node that no API server gives any (podCIDR)."""

    def __init__(
        self,
        *,
        cidrs: PodCidrs,
        wanted: tuple[str, ...],
        until_prepared: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._cidrs = cidrs
        self._wanted = wanted
        self._until_prepared = until_prepared
        """Returns when the runtime has answered."""
        self._clock = clock

    async def run(self) -> None:
        await self._until_prepared()
        # It is over once there is nothing to hand over any more.
        while await self._cidrs.apply(self._wanted):
            await self._clock.sleep(RETRY)
