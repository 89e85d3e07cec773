"""How soon a client that follows a container's log at the agent's API has a line, and how fast it gets many of them."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from bench.cluster.node import NodeUnderTest
from bench.cluster.turns import Ground
from bench.cluster.watch import is_running
from bench.manifests import make_manifest
from bench.rows import Row

LINES = 200
"""One every 50 ms: each finds a reader at rest."""
MANY = 500_000
NO_SLOWER = 1.1
"""Times upstream; the tenth is what two runs of the same agent differ by."""
PATIENCE = 300
CONTAINER = "main"
END = "the end"
SLOWLY = f"i=0; while [ $i -lt {LINES} ]; do echo line $i; i=$((i+1)); sleep 0.05; done; echo {END}; sleep 1000"
QUICKLY = f"sleep 2; yes 0123456789012345678901234567890123456789 | head -n {MANY}; echo {END}; sleep 1000"
_NANOSECOND_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Followed:
    """What the follower of one node has seen."""

    delays: tuple[float, ...]
    """Seconds from the time that the runtime gave a line to its arrival."""
    many: float
    """Seconds in which the lines of the second pod arrived, from the first to the last."""


async def measure_follow(ground: Ground) -> list[Row]:
    async def follow(node: NodeUnderTest, _number: int) -> Followed:
        slow, quick = f"{node.name}-slow", f"{node.name}-quick"
        await node.create([make_manifest(slow, SLOWLY)])
        await node.pods.until([slow], is_running)
        delays = [at - _written(line) for line, at in await _read(node, slow)]
        await node.create([make_manifest(quick, QUICKLY)])
        await node.pods.until([quick], is_running)
        arrived = await _read(node, quick)
        if len(arrived) != MANY + 1:
            raise RuntimeError(f"{len(arrived)} lines of {MANY + 1} arrived")
        return Followed(tuple(delays), arrived[-1][1] - arrived[0][1])

    turns = await ground.take_turns(follow)
    rows = [
        Row(
            what=f"following a log: a line at a client, p{share}",
            klet=_percentile(turns.klet, share) * 1000,
            upstream=_percentile(turns.upstream, share) * 1000,
            unit="ms",
            most_ratio=NO_SLOWER if share == 50 else None,
        )
        for share in (50, 95)
    ]
    many = Row(
        what=f"following a log: {MANY} lines",
        klet=statistics.median(each.many for each in turns.klet),
        upstream=statistics.median(each.many for each in turns.upstream),
        unit="s",
        most_ratio=NO_SLOWER,
    )
    return [*rows, many]


async def _read(node: NodeUnderTest, pod: str) -> list[tuple[bytes, float]]:
    """Return the lines up to the last one, each with the time at which it arrived."""
    lines: list[tuple[bytes, float]] = []
    path = f"/containerLogs/default/{pod}/{CONTAINER}?follow=true&timestamps=true"
    async with asyncio.timeout(PATIENCE), node.open_session() as session, session.get(path) as answer:
        if answer.status != 200:
            raise RuntimeError(f"GET {path}: {answer.status} {await answer.text()}")
        rest = b""
        async for piece in answer.content.iter_any():
            now = time.time()
            *whole, rest = (rest + piece).split(b"\n")
            lines += [(line, now) for line in whole]
            if lines and lines[-1][0].endswith(END.encode()):
                return lines
    raise RuntimeError(f"the log of {pod} ended after {len(lines)} lines")


def _written(line: bytes) -> float:
    """Return when the runtime read a line; it writes nanoseconds, which `fromisoformat` cannot read."""
    stamp = line.split(b" ", 1)[0].decode().removesuffix("Z")
    whole, _, fraction = stamp.partition(".")
    nanoseconds = int(fraction.ljust(_NANOSECOND_DIGITS, "0"))
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + nanoseconds / 1e9


def _percentile(rounds: Sequence[Followed], share: int) -> float:
    return statistics.median(statistics.quantiles(each.delays, n=100, method="inclusive")[share - 1] for each in rounds)
