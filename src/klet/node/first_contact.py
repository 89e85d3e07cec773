"""The first answer of the container runtime: until it has come, the agent runs without the parts that need it.

Upstream's kubelet ends if the runtime does not answer at its start, and the service manager starts it again. klet
waits: the node is registered as not ready, and its API works.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final, Protocol

from msgspec import Struct

from klet.aio.backoff import exponential_delays
from klet.aio.clock import Clock
from klet.cri.errors import CriError, InvalidRuntime, Unimplemented
from klet.model.roles import Part
from klet.node.cgroup_driver import RuntimeConfigs, choose_cgroup_driver
from klet.wire import cri_v1_pb2 as cri

logger = logging.getLogger(__name__)

FIRST_PAUSE: Final = timedelta(milliseconds=200)
LONGEST_PAUSE: Final = timedelta(seconds=1)
UNNAMED: Final = "containerd"
"""What an unknown runtime is called, as in the Node."""


class RuntimeIntroduction(Struct, frozen=True):
    """What the runtime said of itself."""

    name: str
    version: str
    cgroup_driver: str
    is_losing_support: bool = False
    """It does not report its cgroup driver, as a coming release of upstream will require."""


class IntroducedRuntime(RuntimeConfigs, Protocol):
    """The part of the runtime that says what it is."""

    async def version(self, request: cri.VersionRequest) -> cri.VersionResponse: ...

    async def image_fs_info(self, request: cri.ImageFsInfoRequest) -> cri.ImageFsInfoResponse: ...


class FirstContact:
    """Waits for the runtime's first answer, and prepares what depends on it. Also the board that holds the answer."""

    def __init__(
        self,
        *,
        runtime: IntroducedRuntime,
        endpoint: str,
        configured_driver: str,
        clock: Clock,
        found: RuntimeIntroduction | None = None,
    ) -> None:
        self._runtime = runtime
        self._endpoint = endpoint
        self._configured_driver = configured_driver
        self._clock = clock
        self._found = found
        self._prepared = asyncio.Event()
        self._logged = ""

    @property
    def found(self) -> RuntimeIntroduction | None:
        """None until the runtime has answered."""
        return self._found

    def runtime_name(self) -> str:
        return self._found.name if self._found is not None else UNNAMED

    async def until_prepared(self) -> None:
        """Return when the runtime has answered, and what depends on its answer is ready."""
        await self._prepared.wait()

    async def ask(self) -> bool:
        """Ask once; return whether the runtime has answered. Raises CgroupDriverUnknown for a driver that is none."""
        try:
            self._found = await self._introduce()
        except CriError as error:
            if str(error) != self._logged:
                self._logged = str(error)
                logger.info("Waiting for the runtime", extra={"error": self._logged})
            return False
        return True

    async def meet(self, prepare: Callable[[str], Awaitable[None]]) -> None:
        """Ask until the runtime answers; then prepare what depends on its cgroup driver, once."""
        if self._prepared.is_set():
            return
        delays = exponential_delays(first=FIRST_PAUSE, longest=LONGEST_PAUSE)
        while self._found is None and not await self.ask():
            await self._clock.sleep(next(delays))
        if self._found is None:
            raise AssertionError("the runtime has answered")
        await prepare(self._found.cgroup_driver)
        if self._logged:
            logger.info("The runtime has answered", extra={"runtime": self._found.name, "version": self._found.version})
        self._prepared.set()

    async def _introduce(self) -> RuntimeIntroduction:
        try:
            version = await self._runtime.version(cri.VersionRequest())
        except CriError as error:
            raise InvalidRuntime("runtime", self._endpoint, error) from error
        try:
            await self._runtime.image_fs_info(cri.ImageFsInfoRequest())
        except CriError as error:
            raise InvalidRuntime("image", self._endpoint, error) from error
        driver = await self._find_driver()
        return RuntimeIntroduction(
            version.runtime_name,
            version.runtime_version,
            cgroup_driver=driver or self._configured_driver,
            is_losing_support=driver is None,
        )

    async def _find_driver(self) -> str | None:
        """Return the driver to use; None if the runtime cannot be asked."""
        try:
            answer = await self._runtime.runtime_config(cri.RuntimeConfigRequest())
        except Unimplemented:
            logger.info("The runtime does not report its cgroup driver", extra={"configured": self._configured_driver})
            return None
        return choose_cgroup_driver(answer, configured=self._configured_driver)


class AfterFirstContact:
    """Runs the parts that need the runtime, once it has answered."""

    def __init__(
        self, *, contact: FirstContact, prepare: Callable[[str], Awaitable[None]], parts: Sequence[Part]
    ) -> None:
        self._contact = contact
        self._prepare = prepare
        self._parts = parts

    async def run(self) -> None:
        await self._contact.meet(self._prepare)
        async with asyncio.TaskGroup() as group:
            for part in self._parts:
                group.create_task(part.run(), name=type(part).__name__)
