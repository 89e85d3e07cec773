"""`kill -9` of the agent while probed pods run: when the next one has a new pod ready, and what the API shows of the
old pods meanwhile.
"""

import asyncio
import statistics
import time
from dataclasses import dataclass
from itertools import pairwise

from bench.cluster.load import start_probed
from bench.cluster.node import NodeUnderTest
from bench.cluster.turns import Ground
from bench.cluster.watch import is_ready
from bench.manifests import make_manifest
from bench.restart import PODS, WATCHED
from bench.rows import Row

KILLS = 3
TAKEN_RATIO = 2 / 2.8


@dataclass(frozen=True, slots=True)
class Outcome:
    taken: tuple[float, ...]
    flips: int
    restarts: int


async def measure_restart(ground: Ground) -> list[Row]:
    turns = await ground.take_turns(_kill_often, rounds=1)
    (klet,), (upstream,) = turns.klet, turns.upstream
    return [
        Row(
            what="kill -9 -> the first new pod Ready, p50",
            klet=statistics.median(klet.taken),
            upstream=statistics.median(upstream.taken),
            unit="s",
            most_ratio=TAKEN_RATIO,
        ),
        Row(
            what=f"readiness flips of {PODS} probed pods",
            klet=klet.flips,
            upstream=upstream.flips,
            unit="",
            most=0,
        ),
        Row(
            what=f"restarts of {PODS} probed pods",
            klet=klet.restarts,
            upstream=upstream.restarts,
            unit="",
            most=0,
        ),
    ]


async def _kill_often(node: NodeUnderTest, _number: int) -> Outcome:
    names = await start_probed(node, PODS)
    await asyncio.sleep(WATCHED)
    began = time.time()
    taken = []
    for number in range(KILLS):
        taken.append(await _kill_and_start(node, f"fresh-{number}"))
        await asyncio.sleep(WATCHED)
    seen = [node.pods.since(name, began) for name in names]
    return Outcome(
        taken=tuple(taken),
        flips=sum(before.is_ready != after.is_ready for each in seen for before, after in pairwise(each)),
        restarts=sum(before.lives != after.lives for each in seen for before, after in pairwise(each)),
    )


async def _kill_and_start(node: NodeUnderTest, name: str) -> float:
    """The new pod is made when the agent is dead, and the next agent started at once."""
    await node.process.end(kill=True)
    (began,) = await node.create([make_manifest(name)])
    await node.start_again()
    return (await node.pods.until([name], is_ready))[name] - began
