"""What the runtime says of itself, and what the node makes of it."""

import asyncio
from datetime import timedelta

import pytest

from klet.aio.clock import LoopClock
from klet.cri.errors import Code, error_for
from klet.journal.memory import MemoryJournal
from klet.node.runtime_state import (
    RuntimeChecks,
    RuntimeHandler,
    RuntimeReport,
    RuntimeState,
    describe_age,
    judge_status,
)
from klet.testing.loop import EPOCH, run_virtual
from klet.wire import cri_v1_pb2 as cri

WELL = RuntimeReport(runtime_error=None, network_error=None)
NO_CNI = "Network plugin returns error: cni plugin not initialized"


def condition(kind: str, *, met: bool, reason: str = "", message: str = "") -> cri.RuntimeCondition:
    return cri.RuntimeCondition(type=kind, status=met, reason=reason, message=message)


def answer(*conditions: cri.RuntimeCondition) -> cri.StatusResponse:
    return cri.StatusResponse(status=cri.RuntimeStatus(conditions=conditions))


RUNTIME = condition("RuntimeReady", met=True)
NETWORK = condition("NetworkReady", met=True)


@pytest.mark.parametrize(
    ("conditions", "runtime_error", "network_error"),
    [
        pytest.param((RUNTIME, NETWORK), None, None, id="all is well"),
        pytest.param(
            (RUNTIME, condition("NetworkReady", met=False, reason="NetworkPluginNotReady", message=NO_CNI)),
            None,
            f"container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:{NO_CNI}",
            id="no network",
        ),
        pytest.param(
            (condition("RuntimeReady", met=False, reason="Starting", message="wait"), NETWORK),
            "container runtime not ready: RuntimeReady=false reason:Starting message:wait",
            None,
            id="no runtime",
        ),
        pytest.param(
            (),
            "container runtime not ready: <nil>",
            "container runtime network not ready: <nil>",
            id="a runtime that says nothing",
        ),
    ],
)
def test_conditions(conditions, runtime_error, network_error):
    report = judge_status(answer(*conditions))
    assert (report.runtime_error, report.network_error) == (runtime_error, network_error)


def test_what_a_condition_says_is_cut():
    report = judge_status(
        answer(RUNTIME, condition("NetworkReady", met=False, reason="r" * 50_000, message="m" * 50_000))
    )
    assert len(report.network_error or "") <= 12 * 1024


def test_what_the_runtime_can_do_is_kept():
    said = answer(RUNTIME, NETWORK)
    said.runtime_handlers.add(name="runc").features.user_namespaces = True
    said.features.supplemental_groups_policy = True
    report = judge_status(said)
    assert report.handlers == (RuntimeHandler(name="runc", user_namespaces=True),)
    assert report.supplemental_groups_policy


@pytest.mark.parametrize(
    ("ago", "expected"),
    [
        pytest.param(None, "container runtime status check may not have completed yet", id="never"),
        pytest.param(29.9, None, id="a while ago"),
        pytest.param(30, "container runtime is down", id="too long ago"),
    ],
)
def test_age(ago, expected):
    well_at = None if ago is None else EPOCH - timedelta(seconds=ago)
    assert describe_age(well_at, now=EPOCH) == expected


class Runtime:
    """Answers in turn; the last answer goes on."""

    def __init__(self, *answers: cri.StatusResponse | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[float] = []

    async def status(self, request: cri.StatusRequest) -> cri.StatusResponse:  # noqa: ARG002 - the port's signature
        self.asked.append(asyncio.get_running_loop().time())
        said = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(said, Exception):
            raise said
        return said


AWAY = error_for(Code.UNAVAILABLE, "no such socket")


def test_the_state_before_anything_is_known():
    state = RuntimeState(pleg_error=lambda: "pleg has yet to be successful", clock=LoopClock(epoch=EPOCH))

    async def main():
        return state.errors(), state.network_error()

    assert run_virtual(main()) == (
        (
            "container runtime status check may not have completed yet",
            "PLEG is not healthy: pleg has yet to be successful",
        ),
        "network state unknown",
    )


def on_node(*answers, seconds: float):
    """Let the checks run for a while."""

    async def main():
        clock = LoopClock(epoch=EPOCH)
        runtime, journal = Runtime(*answers), MemoryJournal(clock=clock)
        state = RuntimeState(pleg_error=lambda: None, clock=clock)
        checks = RuntimeChecks(runtime=runtime, state=state, recorder=journal, clock=clock)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(checks.run())
            await clock.sleep(timedelta(seconds=seconds))
            task.cancel()
        found = [(cause.finding.decision, cause.finding.message) for cause in journal.all()]
        return runtime.asked, state.errors(), found

    return run_virtual(main())


def test_a_runtime_that_is_well_is_asked_every_five_seconds():
    asked, errors, found = on_node(answer(RUNTIME, NETWORK), seconds=11)
    assert asked == [0, 5, 10]
    assert errors == ()
    assert found == [("NetworkReady", "the container runtime says so")]


def test_a_runtime_that_is_not_well_is_asked_every_second_and_its_word_is_kept():
    nil = cri.StatusResponse()
    asked, errors, _ = on_node(answer(RUNTIME, NETWORK), AWAY, nil, answer(RUNTIME, NETWORK), seconds=8)
    assert asked == [0, 5, 6, 7]
    assert errors == ()


def test_a_runtime_that_stays_away_is_down_after_half_a_minute():
    assert on_node(answer(RUNTIME, NETWORK), AWAY, seconds=29)[1] == ()
    assert on_node(answer(RUNTIME, NETWORK), AWAY, seconds=30)[1] == ("container runtime is down",)


def test_each_change_is_recorded_once():
    bad = condition("RuntimeReady", met=False, reason="r", message="m")
    _, errors, found = on_node(answer(RUNTIME, NETWORK), answer(bad, NETWORK), seconds=20)
    assert found[1:] == [("RuntimeNotReady", "container runtime not ready: RuntimeReady=false reason:r message:m")]
    assert errors == ("container runtime not ready: RuntimeReady=false reason:r message:m",)


def test_waiting_for_a_runtime_ends_as_soon_as_it_says_that_it_is_well():
    async def main():
        clock = LoopClock(epoch=EPOCH)
        state = RuntimeState(pleg_error=lambda: None, clock=clock)
        asyncio.get_running_loop().call_later(7.3, state.note, WELL)
        await state.until_well()
        return clock.monotonic()

    assert run_virtual(main()) == 7.3


def test_waiting_for_the_pleg_looks_again_after_a_while():
    async def main():
        clock = LoopClock(epoch=EPOCH)
        state = RuntimeState(pleg_error=lambda: "x" if clock.monotonic() < 60 else None, clock=clock)
        state.note(WELL)
        asyncio.get_running_loop().call_later(59, state.note, WELL)
        await state.until_well()
        return clock.monotonic()

    assert 60 <= run_virtual(main()) <= 65
