"""Pod CIDRs of the Node or of the configuration, and who takes them."""

import asyncio
from datetime import timedelta

from klet.cri.errors import Code, error_for
from klet.node.pod_cidrs import RETRY, ConfiguredCidrs, PodCidrs, RuntimeCidrs
from klet.testing.clock import ManualClock
from klet.wire import cri_v1_pb2 as cri

DOWN = error_for(Code.UNAVAILABLE, "connection refused")


class CidrRuntime:
    """A runtime that takes pod CIDRs."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.cidrs = []

    async def update_runtime_config(self, request):
        if self.errors:
            raise self.errors.pop()
        self.cidrs.append(request.runtime_config.network_config.pod_cidr)
        return cri.UpdateRuntimeConfigResponse()


async def test_pod_cidrs_are_handed_on_once():
    runtime = CidrRuntime()
    cidrs = PodCidrs(users=(RuntimeCidrs(runtime=runtime),))
    assert await cidrs.apply(()) is False
    assert await cidrs.apply(("10.0.0.0/24", "fd00::/64")) is True
    assert await cidrs.apply(("10.0.0.0/24", "fd00::/64")) is False
    assert await cidrs.apply(("10.0.1.0/24",)) is True
    assert runtime.cidrs == ["10.0.0.0/24,fd00::/64", "10.0.1.0/24"]


async def test_pod_cidrs_that_were_not_taken_count_and_come_again():
    runtime = CidrRuntime(DOWN)
    cidrs = PodCidrs(users=(RuntimeCidrs(runtime=runtime),))
    assert [await cidrs.apply(("10.0.0.0/24",)) for _ in range(3)] == [True, True, False]


async def test_those_of_the_configuration_are_handed_over_once_the_runtime_has_answered():
    runtime, clock, prepared = CidrRuntime(DOWN), ManualClock(), asyncio.Event()

    async def until_prepared():
        await prepared.wait()

    cidrs = PodCidrs(users=(RuntimeCidrs(runtime=runtime),))
    part = ConfiguredCidrs(cidrs=cidrs, wanted=("10.0.0.0/24",), until_prepared=until_prepared, clock=clock)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(part.run())
        await asyncio.sleep(0)
        assert runtime.errors
        prepared.set()
        await clock.until_asleep()
        assert not runtime.errors
        assert runtime.cidrs == []
        clock.advance(RETRY - timedelta(seconds=1))
        assert runtime.cidrs == []
        clock.advance(timedelta(seconds=1))
        await clock.until_asleep()
        assert runtime.cidrs == ["10.0.0.0/24"]
        clock.advance(RETRY)
    assert runtime.cidrs == ["10.0.0.0/24"]
