"""Calls whose caller goes away before the answer."""

import asyncio
from datetime import timedelta

import pytest

from klet.aio.clock import LoopClock
from klet.testing.fake_runtime import FakeRuntime, Fault, Hang, Script
from klet.testing.fake_runtime.pump import timing
from klet.testing.loop import EPOCH, run_virtual
from klet.wire import cri_v1_pb2 as pb

SANDBOX = pb.RunPodSandboxRequest(
    config=pb.PodSandboxConfig(metadata=pb.PodSandboxMetadata(name="p", namespace="d", uid="u"), log_directory="/logs")
)


@pytest.mark.parametrize(
    ("lingers", "left", "made"),
    [
        pytest.param(False, 0, 0, id="a call that is given up has no effect any more"),
        pytest.param(True, 1, 1, id="one that goes on is known to, until it is done"),
    ],
)
def test_a_call_that_nobody_waits_for(lingers, left, made):
    async def main():
        runtime = FakeRuntime(start=EPOCH, script=Script())
        fault = runtime.faults.add(Fault("RunPodSandbox", Hang()))
        with timing(runtime, LoopClock(epoch=EPOCH), lingers=lambda _: lingers) as pump:
            task = asyncio.ensure_future(pump.call("RunPodSandbox", SANDBOX, timeout=timedelta(minutes=1)))
            await asyncio.sleep(1)
            task.cancel()
            await asyncio.wait([task])
            found = [len(runtime.left_calls)]
            fault.release()
            await asyncio.sleep(1)
            return [*found, len(runtime.left_calls), len(runtime.sandboxes())]

    assert run_virtual(main()) == [left, 0, made]
