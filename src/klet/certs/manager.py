"""Keeps one certificate in force (upstream's certificate manager): requests it when due, stores it, publishes it."""

import logging
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.aio.threads import Threads
from klet.certs.board import CertificateBoard
from klet.certs.errors import CertificateError, PairDamaged, PairError, PairMissing, SigningFailed
from klet.certs.findings import find_failure, find_in_force, find_request, show
from klet.certs.messages import CertificateFacts, Pair, Purpose, Template
from klet.certs.pairs import CertificatePair
from klet.certs.requests import CertificateRequester, Issued, Posted, RequestFailed, RequestOutcome
from klet.certs.rotation_plan import (
    ISSUE_PATIENCE,
    TEMPLATE_PERIOD,
    CheckAgain,
    KeepStored,
    Rotate,
    TakeInline,
    decide_beginning,
    decide_rotation,
    hold,
    is_interrupted,
    retry_delays,
)
from klet.certs.store import PairStore
from klet.model.causes import CauseRecorder, Finding

logger = logging.getLogger(__name__)

# A deadline is wall time. Checking every minute keeps it, even if the clock is set or the machine sleeps.
LOOK_AGAIN: Final = timedelta(minutes=1)


class CertificateManager:
    """Owns the certificate of one purpose: `open` once, then `run`."""

    def __init__(
        self,
        *,
        template: Callable[[], Template | None],
        store: PairStore,
        requester: CertificateRequester,
        board: CertificateBoard,
        recorder: CauseRecorder,
        threads: Threads,
        clock: Clock,
        randomness: random.Random,
    ) -> None:
        self._template = template
        self._store = store
        self._requester = requester
        self._board = board
        self._recorder = recorder
        self._threads = threads
        self._clock = clock
        self._randomness = randomness
        self._recorded: Finding | None = None
        """The newest failure: it is recorded once, however often it is repeated."""

    async def open(self, inline: Pair | None = None) -> None:
        """Begin with the stored pair, or with the one of the kubeconfig. Raises PairError for a damaged pair."""
        stored = await self._load()
        facts = None if stored is None else await self._requester.describe(stored.certificate)
        given = None if inline is None else await self._requester.describe(inline.certificate)
        match decide_beginning(facts, given, now=self._clock.now()):
            case KeepStored() if stored is not None and facts is not None:
                self._put(stored, facts)
            case TakeInline() if inline is not None and given is not None:
                self._put(await self._take_in(inline), given, is_provisional=True)
            case _:
                logger.info("There is no certificate yet", extra=self._named())

    async def run(self) -> None:
        delays = self._new_delays()
        while True:
            now, template = self._clock.now(), self._template()
            decision = decide_rotation(self._board.held, template, now=now, is_provisional=self._board.is_provisional)
            if isinstance(decision, CheckAgain):
                # All is well: the next failure begins with the short delays again.
                delays = self._new_delays()
                await self._clock.sleep_until(min(decision.until, now + self._period()))
                continue
            assert template is not None  # without one there is nothing to request
            logger.info("Requesting a certificate", extra={**self._named(), "reason": decision.reason})
            # While attempts fail, each would record another request: one per series of failures is enough.
            if self._recorded is None:
                self._recorder.record(find_request(self._requester.purpose, decision.reason))
            await self._attempt(template)
            # Also after a success: a signer whose certificates do not fit must not be asked in a tight loop.
            if self._is_due():
                await self._clock.sleep(next(delays))

    async def _load(self) -> CertificatePair | None:
        try:
            return await self._threads.run(self._store.load)
        except PairMissing:
            return None

    async def _take_in(self, inline: Pair) -> CertificatePair:
        """Store the pair of the kubeconfig. If that fails, use it unstored until the first rotation."""
        try:
            return await self._threads.run(self._store.update, inline.certificate, inline.key)
        except PairDamaged:
            raise
        except PairError as error:
            logger.error(
                "The certificate of the kubeconfig is not stored", extra={**self._named(), "error": str(error)}
            )
        path = self._store.current_path
        return CertificatePair(certificate_file=path, key_file=path, certificate=inline.certificate)

    def _put(self, pair: CertificatePair, facts: CertificateFacts, *, is_provisional: bool = False) -> None:
        held = hold(facts, fraction=self._randomness.random())
        self._board.put(pair, held, is_provisional=is_provisional)
        extra = {"file": str(pair.certificate_file), "ends": show(facts.not_after), "renewal": show(held.deadline)}
        logger.info("A certificate is in force", extra={**self._named(), **extra})
        self._recorded = None
        self._recorder.record(find_in_force(self._requester.purpose, pair, held))

    async def _attempt(self, template: Template) -> None:
        """Make one request and await its end. Failures are logged and recorded here; the loop retries."""
        try:
            posted = await self._requester.post(template)
            self._board.is_server_well = True
            outcome = await self._await_outcome(posted, template)
            if isinstance(outcome, Issued):
                # On disk before it is in use: an agent that crashes now finds it and makes no second request.
                pair = await self._threads.run(self._store.update, outcome.certificate, posted.key)
                self._put(pair, await self._requester.describe(pair.certificate))
            else:
                self._fail("A certificate was not issued", outcome.reason)
        except SigningFailed as error:
            self._board.is_server_well = error.is_server_well
            self._fail("A certificate could not be requested", str(error))
        except CertificateError as error:
            self._fail("A certificate could not be had", str(error))

    async def _await_outcome(self, posted: Posted, template: Template) -> RequestOutcome:
        """Await the end of a request, which may time out or be for names that are no longer wanted."""
        found: list[RequestOutcome] = []

        async def follow() -> None:
            found.append(await self._requester.outcome(posted))

        async def lose_patience() -> None:
            await self._clock.sleep(ISSUE_PATIENCE)
            found.append(RequestFailed(f'csr "{posted.name}": timed out waiting for the condition'))

        # A node whose addresses change must not wait 15 minutes for a certificate of the old ones.
        await first_of(follow(), lose_patience(), self._until_unwanted(template))
        return found[0] if found else RequestFailed(f'csr "{posted.name}" is for names that the node no longer has')

    async def _until_unwanted(self, requested: Template) -> None:
        while not is_interrupted(self._board.held, requested, self._template()):
            await self._clock.sleep(self._period())

    def _is_due(self) -> bool:
        """Return whether the next request is due at once: after a failure, or after a certificate that does not fit."""
        decision = decide_rotation(
            self._board.held, self._template(), now=self._clock.now(), is_provisional=self._board.is_provisional
        )
        return isinstance(decision, Rotate)

    def _period(self) -> timedelta:
        """Return how often to check: a client's names never change, a server's follow the node's addresses."""
        return TEMPLATE_PERIOD if self._requester.purpose is Purpose.SERVER else LOOK_AGAIN

    def _new_delays(self) -> Iterator[timedelta]:
        return retry_delays(self._randomness.random)

    def _fail(self, message: str, error: str) -> None:
        self._board.renewal_failures += 1
        logger.error(message, extra={**self._named(), "error": error})
        finding = find_failure(self._requester.purpose, message, error, self._board.held)
        if finding != self._recorded:
            self._recorded = finding
            self._recorder.record(finding)

    def _named(self) -> dict[str, str]:
        return {"certificate": self._requester.purpose.value}
