"""What an agent takes when nothing happens, and when it only probes."""

import asyncio

from bench.manifests import PROBE, WEB_SCRIPT
from bench.node import AgentUnderTest, Node
from bench.rows import Row
from bench.starts import start_pods

PODS = 100
PROBED = 50
REST = 5.0
MOST_CPU = {0: 0.5, PODS: 2.0}
MOST_RSS = {0: 75.0, PODS: 100.0}
MOST_PROBING = 8.0


async def measure_idle(node: Node, *, seconds: float) -> list[Row]:
    rows = []
    async with node.agent() as agent:
        for count in (0, PODS):
            if count:
                await start_pods(agent, [f"idle-{number}" for number in range(count)])
            await asyncio.sleep(REST)
            cpu = await agent.process.cpu_share(seconds)
            rows.append(Row(what=f"idle CPU, {count} pods", klet=cpu, unit="%", most=MOST_CPU[count]))
            rows.append(Row(what=f"RSS, {count} pods", klet=agent.process.rss(), unit="MiB", most=MOST_RSS[count]))
    return rows


async def measure_probed(node: Node, *, seconds: float) -> list[Row]:
    """The whole agent with readiness probes against servers in real pods."""
    async with node.agent() as agent:
        await start_probed(agent, PROBED)
        await asyncio.sleep(REST)
        cpu = await agent.process.cpu_share(seconds)
    return [Row(what=f"{PROBED} pods, an http probe each second, CPU", klet=cpu, unit="%", most=MOST_PROBING)]


async def start_probed(agent: AgentUnderTest, count: int) -> list[str]:
    """Pods that are probed each second, once all of them are ready."""
    names = [f"probed-{number}" for number in range(count)]
    async with agent.watch() as watch:
        for name in names:
            agent.write(name, WEB_SCRIPT, probe=PROBE)
        await watch.until(names, "Ready")
    return names
