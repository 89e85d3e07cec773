"""What an agent takes of the machine when nothing happens, and when it only probes; how soon its node is ready."""

import asyncio
import statistics
from dataclasses import dataclass

from bench.cluster.lives import start_pods
from bench.cluster.node import NodeUnderTest
from bench.cluster.turns import Ground, Turns
from bench.cluster.watch import is_ready
from bench.manifests import PROBE, WEB_SCRIPT, make_manifest
from bench.rows import Row

PODS = 100
PROBED = 50
REST = 10.0
CPU_RATIO = {0: 0.5 / 0.95, PODS: 2 / 6.6}
RSS_RATIO = {0: 75 / 76, PODS: 100 / 116}
PROBING_RATIO = 8 / 10.8
READY_RATIO = 1.5


@dataclass(frozen=True, slots=True)
class Load:
    """By the number of pods."""

    cpu: dict[int, float]
    rss: dict[int, float]


async def measure_idle(ground: Ground, *, seconds: float) -> list[Row]:
    async def rest(node: NodeUnderTest, _number: int) -> Load:
        load = Load({}, {})
        for count in (0, PODS):
            if count:
                await start_pods(node, [f"idle-{number}" for number in range(count)])
            await asyncio.sleep(REST)
            load.cpu[count] = await node.process.cpu_share(seconds)
            load.rss[count] = node.process.rss()
        return load

    turns = await ground.take_turns(rest, rounds=1)
    (klet,), (upstream,) = turns.klet, turns.upstream
    rows = []
    for count in (0, PODS):
        rows.append(
            Row(
                what=f"idle CPU, {count} pods",
                klet=klet.cpu[count],
                upstream=upstream.cpu[count],
                unit="%",
                most_ratio=CPU_RATIO[count],
            )
        )
        rows.append(
            Row(
                what=f"RSS, {count} pods",
                klet=klet.rss[count],
                upstream=upstream.rss[count],
                unit="MiB",
                most_ratio=RSS_RATIO[count],
            )
        )
    return rows


async def measure_probed(ground: Ground, *, seconds: float) -> list[Row]:
    """Readiness probes each second against servers in real pods."""

    async def probed(node: NodeUnderTest, _number: int) -> float:
        await start_probed(node, PROBED)
        await asyncio.sleep(REST)
        return await node.process.cpu_share(seconds)

    turns = await ground.take_turns(probed, rounds=1)
    return [
        Row(
            what=f"{PROBED} pods, an http probe each second, CPU",
            klet=turns.klet[0],
            upstream=turns.upstream[0],
            unit="%",
            most_ratio=PROBING_RATIO,
        )
    ]


async def start_probed(node: NodeUnderTest, count: int) -> list[str]:
    """Pods that are probed each second, once all of them are ready."""
    names = [f"probed-{number}" for number in range(count)]
    await node.create([make_manifest(name, WEB_SCRIPT, probe=PROBE) for name in names])
    await node.pods.until(names, is_ready)
    return names


async def measure_ready(ground: Ground) -> list[Row]:
    """Every node that was made counts."""

    async def nothing(_node: NodeUnderTest, _number: int) -> None:
        return

    if not ground.ready_after.klet:
        await ground.take_turns(nothing)
    return [show_ready(ground.ready_after)]


def show_ready(taken: Turns[float]) -> Row:
    return Row(
        what="agent start -> node Ready, p50",
        klet=statistics.median(taken.klet),
        upstream=statistics.median(taken.upstream),
        unit="s",
        most_ratio=READY_RATIO,
    )
