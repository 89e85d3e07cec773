"""When the node is registered, and when again."""

from datetime import timedelta

import pytest

from klet.aio.clock import LoopClock
from klet.api.meta import Status
from klet.journal.memory import MemoryJournal
from klet.kube.errors import ApiError, Forbidden
from klet.metrics import MetricRegistry
from klet.model.causes import Finding, FindingSubject
from klet.model.reasons import Reason
from klet.node.board import NodeBoard
from klet.node.metrics import StartupTimes
from klet.node.registrar import NodeRegistrar
from klet.testing.loop import EPOCH, run_virtual

FINDING = Finding(subject=FindingSubject(), decider="test", decision=Reason.NODE_HAS_SUFFICIENT_MEMORY)
FORBIDDEN = Forbidden(Status(code=403, reason="Forbidden"))
BROKEN = ApiError(Status(code=500))


NOT_READY = ("PLEG is not healthy",)


def register(api, composer_of, errors=lambda _passed: NOT_READY):
    """Register in virtual time: the node, the seconds it took, the decisions."""

    async def run():
        clock = LoopClock(epoch=EPOCH)
        journal, board = MemoryJournal(clock=clock), NodeBoard()
        registrar = NodeRegistrar(
            api=api,
            initial=composer_of(clock, findings=(FINDING,)),
            reset_devices=lambda: False,
            errors=lambda: errors(clock.now() - EPOCH),
            board=board,
            times=StartupTimes(
                registry=MetricRegistry(), board=board, booted_at=lambda: None, started_at=EPOCH, clock=clock
            ),
            recorder=journal,
            clock=clock,
        )
        node = await registrar.register()
        assert board.node == node
        return clock.now() - EPOCH, [cause.finding.decision for cause in journal.all()]

    return run_virtual(run())


@pytest.mark.parametrize(
    ("ready_after", "milliseconds"),
    [
        pytest.param(0, 0, id="a node that is ready does not wait"),
        pytest.param(30, 30, id="one that becomes ready is registered then"),
        pytest.param(5000, 100, id="one that does not is registered as it is"),
    ],
)
def test_the_first_try_waits_for_a_ready_node(api, composer_of, ready_after, milliseconds):
    def errors(passed):
        return NOT_READY if passed < timedelta(milliseconds=ready_after) else ()

    took, _ = register(api, composer_of, errors)
    assert took == timedelta(milliseconds=milliseconds)


def test_a_new_node_after_a_short_pause(api, composer_of):
    assert register(api, composer_of) == (
        timedelta(milliseconds=100),
        ["NodeHasSufficientMemory", "NodeRegistered"],
    )


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [
        pytest.param(1, 0.1 + 0.2, id="the pause doubles"),
        pytest.param(7, 0.1 + 0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 6.4 + 7, id="up to seven seconds"),
        pytest.param(9, 0.1 + 0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 6.4 + 7 + 7 + 7, id="and no further"),
    ],
)
def test_pauses_between_tries(api, composer_of, down, failures, seconds):
    api.fail("create", *[down, BROKEN, down, BROKEN, down, BROKEN, down, BROKEN, down][:failures])
    took, _ = register(api, composer_of)
    assert took.total_seconds() == pytest.approx(seconds)
    assert api.count("create") == failures + 1


def test_a_node_that_is_there_and_as_it_should_be_is_only_read(api, composer_of, node_of):
    api.node = node_of()
    _, decisions = register(api, composer_of)
    assert api.calls == ["create", "get"]
    assert decisions == ["NodeHasSufficientMemory", "NodeAdopted"]


def test_what_a_start_finds_is_reported_once_however_many_tries_it_takes(api, composer_of, down):
    api.fail("create", down, down)
    _, decisions = register(api, composer_of)
    assert decisions == ["NodeHasSufficientMemory", "NodeRegistered"]


def test_a_node_that_may_not_be_made_and_is_not_there_is_tried_again(api, composer_of):
    api.fail("create", FORBIDDEN)
    register(api, composer_of)
    assert api.calls == ["create", "get", "create"]


def test_an_adoption_that_fails_is_repeated(api, composer_of, node_of, down):
    api.node = node_of()
    api.fail("get", down)
    took, decisions = register(api, composer_of)
    assert took == timedelta(milliseconds=300)
    assert decisions == ["NodeHasSufficientMemory", "NodeAdopted"]
