"""Static pods from their manifests to Running: one at a time, and many at once."""

import time

from bench.floor import Floor
from bench.node import AgentUnderTest, Node
from bench.rows import Round, Row, compare_rounds

ONE_RATIO = 1.7
MANY_RATIO = 1.25
ONES = 8


async def measure_one(floor: Floor, node: Node, *, rounds: int) -> list[Row]:
    """The first pod of each round only warms both sides up."""
    ours: list[Round] = []
    theirs: list[Round] = []
    for number in range(rounds):
        each = [(await floor.start(1, at_once=1)).p50 for _ in range(ONES + 1)]
        theirs.append(Round(tuple(each[1:])))
        async with node.agent() as agent:
            each = []
            for pod in range(ONES + 1):
                each.append((await start_pods(agent, [f"one-{number}-{pod}"])).p50)
                await agent.clear()
            ours.append(Round(tuple(each[1:])))
    return compare_rounds("1 pod", ours, theirs, most_ratio=ONE_RATIO, with_all=False)


async def measure_many(floor: Floor, node: Node, *, count: int, at_once: int, rounds: int) -> list[Row]:
    """Rounds of both sides in turn, so that a machine that gets slower slows both."""
    ours: list[Round] = []
    theirs: list[Round] = []
    for number in range(rounds):
        theirs.append(await floor.start(count, at_once=at_once))
        async with node.agent() as agent:
            ours.append(await start_pods(agent, [f"many-{number}-{pod}" for pod in range(count)]))
    return compare_rounds(f"{count} pods at once", ours, theirs, most_ratio=MANY_RATIO)


async def start_pods(agent: AgentUnderTest, names: list[str]) -> Round:
    """From the first manifest to the moment a client of the agent sees that each runs."""
    async with agent.watch() as watch:
        began = time.time()
        for name in names:
            agent.write(name)
        found = await watch.until(names, "PhaseChanged", "-> Running")
    statuses = await agent.pods()
    if wrong := [name for name in names if statuses[name]["phase"] != "Running"]:
        raise RuntimeError(f"reported as Running, but served as something else: {wrong}")
    return Round(tuple(at - began for at in found.values()))
