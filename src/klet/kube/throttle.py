"""Client-side limits on requests: a token bucket (client-go's flowcontrol), first come first served."""

import asyncio
from datetime import timedelta
from typing import Final, Protocol

from klet.aio.clock import Clock

_SHORTEST: Final = 1e-6
"""Durations are rounded to microseconds: no wait is so short that no time passes."""
_ROUNDING: Final = 1e-6


class Throttle(Protocol):
    """Holds a request back until it may go."""

    async def wait(self) -> None: ...


class Unlimited:
    """Holds nothing back."""

    async def wait(self) -> None:
        return


class TokenBucket:
    """`rate` requests a second on average, `burst` at once. A cancelled wait takes no token."""

    def __init__(self, *, rate: float, burst: int, clock: Clock) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._counted_at = clock.monotonic()
        self._first = asyncio.Lock()
        """Held by the first waiter; the others wait for it in order."""

    async def wait(self) -> None:
        async with self._first:
            while (missing := 1 - self._count()) > _ROUNDING:
                await self._clock.sleep(timedelta(seconds=max(missing / self._rate, _SHORTEST)))
            self._tokens -= 1

    def try_now(self) -> bool:
        """Take a token if there is one; never wait."""
        if 1 - self._count() > _ROUNDING:
            return False
        self._tokens -= 1
        return True

    def _count(self) -> float:
        now = self._clock.monotonic()
        self._tokens = min(float(self._burst), self._tokens + (now - self._counted_at) * self._rate)
        self._counted_at = now
        return self._tokens


def throttle_for(qps: int, burst: int, clock: Clock) -> Throttle:
    """Return the limit that a pair of settings means: no queries a second means no limit."""
    return TokenBucket(rate=qps, burst=max(burst, 1), clock=clock) if qps > 0 else Unlimited()
