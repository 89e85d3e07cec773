"""Compare what klet and upstream's kubelet report of the same pods on the same node."""

import asyncio, sys
from datetime import timedelta
from pathlib import Path
from klet.aio.clock import SystemClock
from klet.testing.metrics_comparison.stage import set_up
from klet.testing.metrics_comparison.recordings import write_recording


async def run():
    say = lambda t: print(t, file=sys.stderr, flush=True)
    async with set_up(clock=SystemClock(), report=say) as stage:
        await stage.create_pods()
        for agent in sys.argv[2:]:
            r = await stage.record(agent, between=timedelta(seconds=30))
            write_recording(r, Path(sys.argv[1]) / agent)


asyncio.run(run())
