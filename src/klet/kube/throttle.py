"""Client-side limits on requests: a token bucket (client-go's flowcontrol), first come first served."""

from datetime import timedelta
from typing import Protocol

from klet.aio.clock import Clock


class Throttle(Protocol):
    """Holds a request back until it may go."""

    async def wait(self) -> None: ...


class Unlimited:
    """Holds nothing back."""

    async def wait(self) -> None:
        return


class TokenBucket:
    """`rate` requests a second on average, `burst` at once."""

    def __init__(self, *, rate: float, burst: int, clock: Clock) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._counted_at = clock.monotonic()

    async def wait(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(float(self._burst), self._tokens + (now - self._counted_at) * self._rate)
        self._counted_at = now
        # Below zero means that others wait already: each one's turn comes a fixed time after the one before.
        self._tokens -= 1
        if self._tokens < 0:
            await self._clock.sleep(timedelta(seconds=-self._tokens / self._rate))


def throttle_for(qps: int, burst: int, clock: Clock) -> Throttle:
    """The limit that a pair of settings means: no queries a second means no limit."""
    return TokenBucket(rate=qps, burst=max(burst, 1), clock=clock) if qps > 0 else Unlimited()
