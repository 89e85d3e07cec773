"""`kill -9` of the agent while probed pods run: when the next one has a new pod ready, and what the old pods notice."""

import asyncio
import statistics
import time

from bench.idle import start_probed
from bench.node import AgentUnderTest, Node
from bench.rows import Row

PODS = 30
MOST_SECONDS = 2.0
WATCHED = 3.0
"""Seconds after the new pod is ready in which the old ones are watched on, over several of their probes."""


async def measure_restart(node: Node, *, rounds: int) -> list[Row]:
    taken = []
    flips = restarts = 0
    async with node.agent() as agent:
        names = await start_probed(agent, PODS)
        for number in range(rounds):
            await asyncio.sleep(WATCHED)
            before = await agent.pods()
            taken.append(await _kill_and_start(agent, f"fresh-{number}"))
            await asyncio.sleep(WATCHED)
            after = await agent.pods()
            flips += sum(_readiness(before[name]) != _readiness(after[name]) for name in names)
            restarts += sum(_lives(before[name]) != _lives(after[name]) for name in names)
    return [
        Row(what="kill -9 to the first new pod Ready, p50", klet=statistics.median(taken), unit="s", most=MOST_SECONDS),
        Row(what="kill -9 to the first new pod Ready, worst", klet=max(taken), unit="s", most=MOST_SECONDS),
        Row(what=f"readiness flips of {PODS} probed pods", klet=flips, unit="", most=0),
        Row(what=f"restarts of {PODS} probed pods", klet=restarts, unit="", most=0),
    ]


async def _kill_and_start(agent: AgentUnderTest, name: str) -> float:
    """The new pod's manifest is written when the agent is dead, and the next agent started at once."""
    await agent.end(kill=True)
    began = time.time()
    agent.write(name)
    await agent.start()
    await agent.until_answering()
    async with agent.watch(since=began) as watch:
        return (await watch.until([name], "Ready"))[name] - began


def _readiness(status: dict[str, object]) -> object:
    """A flip and back would show in the time of the last transition."""
    conditions = status["conditions"]
    assert isinstance(conditions, list)
    return [condition for condition in conditions if condition["type"] == "Ready"]


def _lives(status: dict[str, object]) -> object:
    containers = status["containerStatuses"]
    assert isinstance(containers, list)
    return [(container["restartCount"], container["containerID"]) for container in containers]
