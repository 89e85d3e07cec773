"""An agent dies at a call, or between any two steps of its tasks; after that nothing it does has an effect."""

import asyncio
import itertools

import pytest

from klet.simulation.mortal import Lifeline
from klet.testing.loop import run_virtual


async def _work(lifeline: Lifeline, done: list[int]) -> None:
    for number in range(100):
        dies_after = await lifeline.before_call()
        done.append(number)
        if dies_after:
            await lifeline.die()
        await asyncio.sleep(0)


async def _live(doom) -> list[int]:
    lifeline, done = Lifeline(), []
    doom(lifeline)
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(_work(lifeline, done))
        await lifeline.died.wait()
        worker.cancel()
    return done


@pytest.mark.parametrize(
    ("calls", "after_effect", "done"),
    [
        pytest.param(0, False, [], id="at once"),
        pytest.param(3, False, [0, 1], id="before the effect of its third call"),
        pytest.param(3, True, [0, 1, 2], id="after the effect of its third call"),
    ],
)
def test_death_at_a_call(calls, after_effect, done):
    assert run_virtual(_live(lambda lifeline: lifeline.doom(calls=calls, after_effect=after_effect))) == done


def test_death_at_any_step_ends_at_each_place_once():
    def after(steps):
        async def main():
            return await _live(lambda lifeline: lifeline.doom_after_steps(asyncio.get_running_loop(), steps))

        return len(run_virtual(main()))

    reached = [after(steps) for steps in range(12)]
    assert reached[0] == 0
    assert all(later - earlier in (0, 1) for earlier, later in itertools.pairwise(reached))
    assert reached[-1] > 5


def test_whoever_is_spared_lives_on():
    async def main():
        loop, lifeline, done = asyncio.get_running_loop(), Lifeline(), []
        lifeline.doom(calls=3, after_effect=False)
        lifeline.doom_after_steps(loop, 5)
        lifeline.spare(loop)
        await _work(lifeline, done)
        return len(done), lifeline.died.is_set()

    assert run_virtual(main()) == (100, False)
