"""Notifies systemd while the parts of the agent are well (upstream: the systemd watchdog health checker).

It runs on the agent's own event loop, so a loop that hangs is noticed too.
"""

import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Final, Protocol

from klet.aio.clock import Clock
from klet.errors import KletError
from klet.host.systemd_notify import WATCHDOG, NotifyError

logger = logging.getLogger(__name__)

SHORTEST: Final = timedelta(seconds=1)
TRIES: Final = 2
_PAUSE: Final = timedelta(seconds=1)
_JITTER: Final = 0.1

Check = Callable[[], Awaitable[str | None]]
"""What is wrong with a part; None if nothing is."""


class WatchdogError(KletError):
    """A watchdog that cannot be served."""


class StateNotifier(Protocol):
    """The service manager that the agent notifies."""

    def notify(self, state: str) -> bool: ...


class Watchdog:
    """Notifies systemd twice in the time that is allowed."""

    def __init__(
        self,
        *,
        manager: StateNotifier,
        allowed: timedelta,
        checks: Mapping[str, Check],
        clock: Clock,
        randomness: random.Random,
    ) -> None:
        self._manager = manager
        self._every = allowed / 2
        self._checks = checks
        self._clock = clock
        self._randomness = randomness

    async def run(self) -> None:
        while True:
            await self.beat()
            await self._clock.sleep(self._every)

    async def beat(self) -> None:
        """Notify systemd, unless a part is not well."""
        for name, check in self._checks.items():
            if problem := await check():
                logger.error("Not notifying the watchdog", extra={"check": name, "error": problem})
                return
        for tries_left in reversed(range(TRIES)):
            try:
                if not self._manager.notify(WATCHDOG):
                    logger.error("Failed to notify systemd watchdog", extra={"error": "NOTIFY_SOCKET is unset"})
                return
            except NotifyError as error:
                logger.warning("Failed to notify systemd watchdog", extra={"error": str(error)})
            if tries_left:
                await self._clock.sleep(_PAUSE * (1 + _JITTER * self._randomness.random()))


def check_allowed(allowed: timedelta) -> timedelta:
    """Return the time allowed, if it can be kept; raises WatchdogError."""
    if allowed <= SHORTEST:
        raise WatchdogError(
            f"configure watchdog timeout too small: {allowed.total_seconds():g}s: "
            "WatchdogSec in the unit must be more than 1s"
        )
    return allowed
