"""Work that is given up when its pod is to stop, in virtual time."""

import asyncio

import pytest

from klet.model.pods import PodUID
from klet.model.stopping_pods import PodStopping, StoppingPods
from klet.testing.loop import run_virtual

UID = PodUID("uid-1")


async def answer_after(seconds: float, trace: list[str]) -> int:
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        trace.append("cancelled")
        raise
    return 7


def test_work_that_nobody_stops_gives_its_result():
    assert run_virtual(StoppingPods().run(UID, answer_after(3, []))) == 7


def test_work_under_way_is_given_up():
    trace: list[str] = []

    async def main():
        stopping_pods = StoppingPods()
        loop = asyncio.get_running_loop()
        loop.call_later(1, stopping_pods.mark, UID)
        with pytest.raises(PodStopping):
            await stopping_pods.run(UID, answer_after(3600, trace))
        return loop.time()

    assert run_virtual(main()) == 1
    assert trace == ["cancelled"]


def test_work_for_a_pod_that_is_to_stop_does_not_begin_until_that_is_over():
    async def main():
        stopping_pods = StoppingPods()
        stopping_pods.mark(UID)
        assert stopping_pods.is_stopping(UID)
        with pytest.raises(PodStopping):
            await stopping_pods.run(UID, answer_after(0, []))
        stopping_pods.clear(UID)
        return await stopping_pods.run(UID, answer_after(0, []))

    assert run_virtual(main()) == 7


def test_other_pods_go_on():
    async def main():
        stopping_pods = StoppingPods()
        asyncio.get_running_loop().call_later(1, stopping_pods.mark, PodUID("other"))
        return await stopping_pods.run(UID, answer_after(3, []))

    assert run_virtual(main()) == 7


def test_what_the_work_raises_comes_out_as_it_is():
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_virtual(StoppingPods().run(UID, fail()))


def test_two_pieces_of_work_of_one_pod_are_both_given_up():
    async def main():
        stopping_pods = StoppingPods()
        asyncio.get_running_loop().call_later(1, stopping_pods.mark, UID)
        runs = (stopping_pods.run(UID, answer_after(10, [])) for _ in range(2))
        return await asyncio.gather(*runs, return_exceptions=True)

    assert [type(result) for result in run_virtual(main())] == [PodStopping, PodStopping]


def test_work_that_is_itself_out_of_time_says_so():
    async def be_late() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        run_virtual(StoppingPods().run(UID, be_late()))


def test_a_pod_may_be_stopped_again_while_its_work_is_being_cancelled():
    async def linger() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(2)

    async def main():
        stopping_pods, loop = StoppingPods(), asyncio.get_running_loop()
        for after in (1, 1, 2):
            loop.call_later(after, stopping_pods.mark, UID)
        with pytest.raises(PodStopping):
            await stopping_pods.run(UID, linger())
        return loop.time()

    assert run_virtual(main()) == 3
