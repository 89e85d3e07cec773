"""Whether the API server is away, and since when.

It is away when nothing has answered for a while: neither the requests of the agent nor, while there is doubt, a
question of our own. An answer that refuses is an answer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final, Protocol

from klet.aio.broadcast import Subscription
from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.kube.errors import KubeError
from klet.model.causes import CauseRecorder
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder

logger = logging.getLogger(__name__)

DECIDER: Final = "offline.outage"
ASK_AGAIN: Final = timedelta(seconds=2)
ASK_WHILE_AWAY: Final = timedelta(seconds=10)


class Outage:
    """A board: the API server is there, or away since an instant. Written by the watch of it only."""

    def __init__(self) -> None:
        self._since: datetime | None = None
        self._away = asyncio.Event()
        self._there = asyncio.Event()
        self._there.set()

    @property
    def since(self) -> datetime | None:
        """None while the API server is there, or not yet known to be away."""
        return self._since

    def is_away(self) -> bool:
        return self._since is not None

    def begin(self, since: datetime) -> None:
        self._since = since
        self._there.clear()
        self._away.set()

    def end(self) -> None:
        self._since = None
        self._away.clear()
        self._there.set()

    async def until_away(self) -> None:
        await self._away.wait()

    async def until_there(self) -> None:
        await self._there.wait()


class Outcomes(Protocol):
    """What becomes of the agent's requests."""

    def outcomes(self) -> Subscription[bool]:
        """Subscribe to the outcomes of requests: whether the API server answered."""
        ...


class OutageWatch:
    """Writes the board. `ask` is a small request whose outcome is seen as those of all others are."""

    def __init__(
        self,
        *,
        outage: Outage,
        reach: Outcomes,
        ask: Callable[[], Awaitable[object]],
        patience: timedelta,
        recorder: CauseRecorder,
        clock: Clock,
    ) -> None:
        self._outage = outage
        self._reach = reach
        self._ask = ask
        self._patience = patience
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock

    async def run(self) -> None:
        with self._reach.outcomes() as outcomes:
            silent_since = self._clock.now()
            while True:
                if not await self._answers_in_time(outcomes):
                    await self._be_away(outcomes, silent_since)
                await _until(outcomes, answered=False)
                silent_since = self._clock.now()

    async def _answers_in_time(self, outcomes: Subscription[bool]) -> bool:
        answer = asyncio.Event()

        async def listen() -> None:
            await _until(outcomes, answered=True)
            answer.set()

        await first_of(listen(), self._keep_asking(every=ASK_AGAIN), self._clock.sleep(self._patience))
        return answer.is_set()

    async def _keep_asking(self, *, every: timedelta) -> None:
        while True:
            await self._clock.sleep(every)
            try:
                await self._ask()
            except KubeError as error:
                logger.debug("The API server does not answer", extra={"error": str(error)})

    async def _be_away(self, outcomes: Subscription[bool], since: datetime) -> None:
        self._outage.begin(since)
        logger.debug("The API server counts as away", extra={"since": since.isoformat()})
        began = self._clock.monotonic()
        self._decisions.for_node().record(
            Reason.API_SERVER_AWAY,
            f"the API server has not answered since {since:%Y-%m-%dT%H:%M:%SZ}; pods go on as they are",
            since=since,
            next_step="report to it what happened when it is back",
        )
        await first_of(_until(outcomes, answered=True), self._keep_asking(every=ASK_WHILE_AWAY))
        self._outage.end()
        seconds = round(self._clock.monotonic() - began + self._patience.total_seconds())
        logger.debug("The API server does not count as away any more", extra={"duration": seconds})
        self._decisions.for_node().record(
            Reason.API_SERVER_BACK,
            f"the API server answers again after {seconds} s",
            since=since,
            next_step="take over what it has changed",
        )


async def _until(outcomes: Subscription[bool], *, answered: bool) -> None:
    while await outcomes.next_item() is not answered:
        continue
