"""The loop around one certificate, on a clock that only the test moves."""

import asyncio
import logging
import random
import shutil
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise

import pytest
from msgspec.structs import replace

from klet.aio.threads import Threads
from klet.certs.board import CertificateBoard
from klet.certs.errors import PairDamaged, SigningFailed
from klet.certs.manager import CertificateManager
from klet.certs.messages import Purpose, Template
from klet.certs.requests import CertificateRequester, Issued, RequestFailed
from klet.certs.store import CLIENT_PREFIX, PairStore
from klet.journal.memory import MemoryJournal

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
NODE = Template(common_name="system:node:edge-1", organizations=("system:nodes",))
PROMPTLY = 30


class Api:
    """Answers as configured: with an outcome, an error, or never."""

    def __init__(self, clock, maker):
        self.clock, self.maker = clock, maker
        self.answers = []
        self.posted = asyncio.Queue()
        self.purpose = Purpose.CLIENT

    async def create(self, request):
        self.posted.put_nowait(self.clock.now())
        answer = self.answers.pop(0) if self.answers else "sign"
        if isinstance(answer, SigningFailed):
            raise answer
        if answer == "sign":
            answer = Issued(self.maker.sign(request, self.purpose))
        if answer == "short":
            answer = Issued(self.maker.sign(request, self.purpose, lifetime=10 * SECOND))
        self.answer = answer
        return replace(request, metadata=replace(request.metadata, name="csr-abc", uid="u"))

    async def get(self, name):
        raise AssertionError(name)

    async def follow(self, name, judge):  # noqa: ARG002  # the port's signature
        if self.answer == "never":
            await asyncio.get_running_loop().create_future()
        return self.answer


class Setup:
    def __init__(self, clock, maker, directory, purpose=Purpose.CLIENT):
        self.api = Api(clock, maker)
        self.api.purpose = purpose
        self.board = CertificateBoard()
        self.journal = MemoryJournal(clock=clock)
        self.directory = directory
        self.store = PairStore(prefix=CLIENT_PREFIX, directory=directory, configured=None, clock=clock)
        self.template = NODE
        self.threads = Threads(limit=1)
        self.failures = asyncio.Queue()
        self.rotator = CertificateManager(
            template=lambda: self.template,
            store=self.store,
            requester=CertificateRequester(purpose=purpose, maker=maker, api=self.api),
            board=self.board,
            recorder=self.journal,
            threads=self.threads,
            clock=clock,
            randomness=random.Random(1),
        )

    @asynccontextmanager
    async def running(self, *answers):
        """The loop at work, with what it will be answered; afterwards everything is signed."""
        self.api.answers = list(answers)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.rotator.run())
            try:
                yield
            finally:
                task.cancel()

    async def next_failure(self):
        """What went wrong; the loop waits afterwards."""
        return await asyncio.wait_for(self.failures.get(), PROMPTLY)

    async def next_post(self):
        return await asyncio.wait_for(self.api.posted.get(), PROMPTLY)


class Failures(logging.Handler):
    def __init__(self, queue):
        super().__init__(logging.ERROR)
        self.queue = queue

    def emit(self, record):
        self.queue.put_nowait(record.error)


@pytest.fixture
def setup(clock, maker, tmp_path):
    made = Setup(clock, maker, tmp_path)
    logger, handler = logging.getLogger("klet.certs.manager"), Failures(made.failures)
    logger.addHandler(handler)
    yield made
    logger.removeHandler(handler)
    made.threads.close()


async def test_nothing_is_stored_at_first(setup):
    await setup.rotator.open()
    assert setup.board.held is None
    assert not setup.board.is_valid(now=setup.api.clock.now())


async def test_a_stored_pair_is_in_force(setup, clock, new_pair):
    pair = new_pair(organizations=("system:nodes",))
    setup.store.update(pair.certificate, pair.key)
    await setup.rotator.open()
    assert setup.board.is_valid(now=clock.now())
    assert setup.board.pair.certificate == pair.certificate


async def test_an_expired_pair_counts_as_none(setup, clock, new_pair):
    pair = new_pair(lifetime=DAY)
    setup.store.update(pair.certificate, pair.key)
    clock.advance(2 * DAY)
    await setup.rotator.open()
    assert setup.board.pair is None


async def test_an_inline_pair_is_stored_and_only_provisional(setup, new_pair):
    pair = new_pair(organizations=("system:nodes",))
    await setup.rotator.open(pair)
    assert setup.board.is_provisional
    assert setup.store.load().certificate == pair.certificate


async def test_an_inline_pair_that_cannot_be_stored_does_all_the_same(setup, new_pair, clock):
    """As upstream: a directory that cannot be written is no reason not to start with what was given."""
    pair = new_pair(organizations=("system:nodes",))
    setup.directory.rmdir()
    setup.directory.write_text("a file")
    await setup.rotator.open(pair)
    assert setup.board.is_provisional
    assert setup.board.is_valid(now=clock.now())
    assert "cannot store a certificate" in await setup.next_failure()


async def test_a_damaged_pair_is_an_error(setup, tmp_path):
    (tmp_path / "kubelet-client-current.pem").write_text("nothing")
    with pytest.raises(PairDamaged, match="holds no PEM certificate"):
        await setup.rotator.open()


async def test_the_first_certificate_is_requested_at_once_and_the_next_at_its_deadline(setup, clock):
    began = clock.now()
    async with setup.running():
        with setup.board.changes() as changes:
            assert await setup.next_post() == began
            first = await changes.get()
            deadline = setup.board.held.deadline
            life = setup.board.held.facts.not_after - setup.board.held.facts.not_before
            assert 0.7 * life <= deadline - setup.board.held.facts.not_before <= 0.9 * life
            await clock.until_asleep()
            clock.advance_to(deadline - SECOND)
            await clock.until_asleep()
            assert setup.api.posted.empty()
            clock.advance_to(deadline)
            assert await setup.next_post() == deadline
            second = await changes.get()
        assert first.certificate != second.certificate
        assert setup.store.load() == second


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(RequestFailed("certificate signing request is denied"), id="a denial"),
        pytest.param(Issued("no certificate"), id="a certificate that is none"),
        pytest.param(SigningFailed("no route", may_pass=True), id="a server that is away"),
    ],
)
async def test_failures_are_tried_again_after_growing_waits(setup, clock, answer):
    async with setup.running(*[answer] * 7):
        times = [await setup.next_post()]
        for _ in range(7):
            await setup.next_failure()
            await clock.until_asleep()
            clock.advance_to(clock.next_wake())
            times.append(await setup.next_post())
        waits = [(later - earlier) / SECOND for earlier, later in pairwise(times)]
        for wait, least in zip(waits, (2, 4, 8, 16), strict=False):
            assert least <= wait <= least * 1.1
        assert waits[4:] == [32, 32, 32]
        assert setup.board.renewal_failures == 7


async def test_the_journal_has_the_story_of_a_renewal(setup, clock):
    away = SigningFailed("no route", may_pass=True)
    async with setup.running(away, away, "sign"):
        with setup.board.changes() as changes:
            for _ in range(2):
                await setup.next_post()
                await setup.next_failure()
                await clock.until_asleep()
                clock.advance_to(clock.next_wake())
            await changes.get()
    story = [cause.finding for cause in setup.journal.all()]
    assert [(each.decision, each.decider) for each in story] == [
        ("CertificateRequested", "certs.manager"),
        ("CertificateNotRenewed", "certs.manager"),
        ("CertificateInForce", "certs.manager"),
    ]
    assert story[0].message == "a client certificate is requested: there is no certificate"
    assert "no route; there is none meanwhile" in story[1].message
    assert story[2].next_at == setup.board.held.deadline
    assert not any("PRIVATE KEY" in str(each) for each in story)


async def test_a_certificate_that_cannot_be_stored_is_reported_with_what_is_left(setup, clock, new_pair):
    pair = new_pair(organizations=("system:nodes",))
    setup.store.update(pair.certificate, pair.key)
    await setup.rotator.open()
    before = setup.board.pair
    clock.advance_to(setup.board.held.deadline)
    shutil.rmtree(setup.directory)
    setup.directory.write_text("a file")
    async with setup.running():
        await setup.next_post()
        await setup.next_failure()
    assert setup.board.pair is before
    finding = setup.journal.all()[-1].finding
    assert finding.decision == "CertificateNotRenewed"
    assert "cannot store a certificate" in finding.message
    assert "the present one holds until 2031-01-01T00:00:00Z" in finding.message


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(SigningFailed("x", may_pass=False, is_server_well=True), True, id="a refusal in good order"),
        pytest.param(SigningFailed("x", may_pass=True), False, id="no answer"),
        pytest.param(RequestFailed("denied"), True, id="a request that was taken"),
    ],
)
async def test_what_is_known_of_the_server(setup, answer, expected):
    async with setup.running(answer):
        await setup.next_failure()
        assert setup.board.is_server_well is expected


async def test_a_request_is_given_up_after_a_quarter_of_an_hour(setup, clock):
    async with setup.running("never"):
        began = await setup.next_post()
        await clock.until_asleep(2)
        clock.advance(timedelta(minutes=15))
        assert await setup.next_failure() == 'csr "csr-abc": timed out waiting for the condition'
        await clock.until_asleep()
        clock.advance(timedelta(seconds=3))
        assert await setup.next_post() == began + timedelta(minutes=15, seconds=3)


async def test_a_signer_whose_certificates_are_due_at_once_is_not_flooded(setup, clock):
    async with setup.running("short", "short", "short"):
        times = []
        with setup.board.changes() as changes:
            for _ in range(3):
                times.append(await setup.next_post())
                await changes.get()
                await clock.until_asleep()
                clock.advance_to(clock.next_wake())
        assert [round((later - earlier) / SECOND) for earlier, later in pairwise(times)] == [2, 4]
        assert setup.board.renewal_failures == 0


async def test_a_server_without_an_address_asks_for_nothing(clock, maker, tmp_path):
    setup = Setup(clock, maker, tmp_path, Purpose.SERVER)
    setup.template = None
    async with asyncio.TaskGroup() as group:
        task = group.create_task(setup.rotator.run())
        for _ in range(3):
            await clock.until_asleep()
            clock.advance(SECOND)
        assert setup.api.posted.empty()
        setup.template = Template(common_name=NODE.common_name, organizations=("system:nodes",), ips=("10.0.0.1",))
        with setup.board.changes() as changes:
            await clock.until_asleep()
            clock.advance(SECOND)
            await changes.get()
        assert setup.board.held.facts.ips == ("10.0.0.1",)
        task.cancel()
    setup.threads.close()


async def test_an_inline_pair_is_replaced_at_once(setup, clock, new_pair):
    await setup.rotator.open(new_pair(organizations=("system:nodes",)))
    async with asyncio.TaskGroup() as group:
        with setup.board.changes() as changes:
            task = group.create_task(setup.rotator.run())
            assert await setup.next_post() == clock.now()
            await changes.get()
        assert not setup.board.is_provisional
        task.cancel()
