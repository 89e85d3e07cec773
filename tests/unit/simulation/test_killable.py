"""An agent is killed at a call, or between any two steps of its tasks; after that nothing it does has an effect."""

import asyncio
import itertools

import pytest

from klet.simulation.killable import KillSwitch
from klet.testing.loop import run_virtual


async def _work(kill_switch: KillSwitch, done: list[int]) -> None:
    for number in range(100):
        is_killed_after = await kill_switch.before_call()
        done.append(number)
        if is_killed_after:
            await kill_switch.kill()
        await asyncio.sleep(0)


async def _run_agent(arm) -> list[int]:
    kill_switch, done = KillSwitch(), []
    arm(kill_switch)
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(_work(kill_switch, done))
        await kill_switch.killed.wait()
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
def test_a_kill_at_a_call(calls, after_effect, done):
    assert (
        run_virtual(_run_agent(lambda kill_switch: kill_switch.kill_at_call(calls=calls, after_effect=after_effect)))
        == done
    )


def test_a_kill_after_a_number_of_steps_reaches_each_call():
    def after(steps):
        async def main():
            return await _run_agent(lambda kill_switch: kill_switch.kill_after_steps(asyncio.get_running_loop(), steps))

        return len(run_virtual(main()))

    reached = [after(steps) for steps in range(12)]
    assert reached[0] == 0
    assert all(later - earlier in (0, 1) for earlier, later in itertools.pairwise(reached))
    assert reached[-1] > 5


def test_a_cancelled_kill_does_not_happen():
    async def main():
        loop, kill_switch, done = asyncio.get_running_loop(), KillSwitch(), []
        kill_switch.kill_at_call(calls=3, after_effect=False)
        kill_switch.kill_after_steps(loop, 5)
        kill_switch.disarm(loop)
        await _work(kill_switch, done)
        return len(done), kill_switch.killed.is_set()

    assert run_virtual(main()) == (100, False)
