"""Who acts on the certificate in force: the server that shows it, and the watch over the node's identity."""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

from klet.aio.clock import Clock
from klet.certs.board import CertificateBoard
from klet.certs.errors import IdentityLost
from klet.certs.findings import find_lost
from klet.certs.pairs import CertificatePair
from klet.errors import KletError
from klet.model.causes import CauseRecorder

logger = logging.getLogger(__name__)

PERIOD: Final = timedelta(seconds=10)
FIRST_PERIOD: Final = timedelta(seconds=1)
LOST_AFTER: Final = timedelta(minutes=5)


class PairUser(Protocol):
    """Serves with a pair from now on, and no longer than it holds. Raises KletError for one that it cannot use."""

    async def use(self, certificate_file: Path, key_file: Path, *, until: datetime) -> None: ...


class ServedPair:
    """Hands every new pair to the server: `open` the one that is there, `run` those that come."""

    def __init__(self, *, board: CertificateBoard, user: PairUser) -> None:
        self._board = board
        self._user = user
        self._handed: CertificatePair | None = None

    async def open(self) -> None:
        if (pair := self._board.pair) is not None and pair is not self._handed:
            await self._hand_over(pair)

    async def run(self) -> None:
        with self._board.changes() as changes:
            await self.open()
            async for pair in changes.items():
                await self._hand_over(pair)

    async def _hand_over(self, pair: CertificatePair) -> None:
        self._handed = pair
        held = self._board.held
        if held is None or pair is not self._board.pair:
            return  # a newer one follows
        try:
            await self._user.use(pair.certificate_file, pair.key_file, until=held.facts.not_after)
        except KletError as error:
            logger.error("The serving certificate stays as it was", extra={"error": str(error)})


class IdentityWatch:
    """Ends the agent that has no client certificate for long, though the API server is well: a restart may find one."""

    def __init__(
        self,
        *,
        board: CertificateBoard,
        refresh: Callable[[], Awaitable[None]],
        recorder: CauseRecorder,
        clock: Clock,
    ) -> None:
        self._board = board
        self._refresh = refresh
        self._recorder = recorder
        self._clock = clock
        self._is_logged = False

    async def run(self) -> None:
        """Look every ten seconds, every second before there is a certificate. Raises IdentityLost."""
        # On the clock that never steps: a machine may set its time while it starts.
        last_valid = self._clock.monotonic()
        shown = self._board.pair
        while True:
            if self._board.is_valid(now=self._clock.now()):
                last_valid = self._clock.monotonic()
                self._is_logged = False
                if shown != self._board.pair:
                    shown = self._board.pair
                    logger.info("The client certificate is new: connections with the old one are closed")
                    await self._refresh()
            elif self._clock.monotonic() - last_valid > LOST_AFTER.total_seconds():
                self._give_up()
            await self._clock.sleep(PERIOD if self._board.pair is not None else FIRST_PERIOD)

    def _give_up(self) -> None:
        if self._board.is_server_well or not self._is_logged:
            self._is_logged = True
            self._recorder.record(find_lost(is_server_well=self._board.is_server_well))
        lost = f"no valid client certificate for more than {LOST_AFTER}"
        if self._board.is_server_well:
            raise IdentityLost(f"{lost}, and the API server answers: restart to try the bootstrap credentials")
        logger.error(
            "There is no valid client certificate, and the API server does not answer",
            extra={"next": "a restart may be needed to get new credentials"},
        )
