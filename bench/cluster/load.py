"""What an agent takes of the machine when nothing happens, and when it only probes; how soon its node is ready."""

import asyncio
import os
import shutil
import statistics
from dataclasses import dataclass
from pathlib import Path

from bench.cluster.lives import start_pods
from bench.cluster.node import NodeUnderTest
from bench.cluster.programs import CHECKOUT, LAUNCHED, UPSTREAM
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
READY_RATIO = 0.8
COLD_RATIO = 1.0
SOURCES = CHECKOUT / "src/klet"
DROP_CACHES = Path("/proc/sys/vm/drop_caches")


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
    """Every node that was made counts; then nodes whose programs must be read from the disk."""

    async def nothing(_node: NodeUnderTest, _number: int) -> None:
        return

    if not ground.ready_after.klet:
        await ground.take_turns(nothing)
    cold = await ground.take_turns(_take_ready, programs=(LAUNCHED, UPSTREAM), before=forget_files)
    return [
        show_ready("agent start -> node Ready, p50", ground.ready_after, READY_RATIO),
        show_ready("caches dropped, no bytecode directories, p50", cold, COLD_RATIO),
    ]


async def _take_ready(node: NodeUnderTest, _number: int) -> float:
    return node.ready_after


def forget_files() -> None:
    """Drop what the kernel has of all files, and the bytecode that Python keeps beside klet's modules."""
    for directory in sorted(SOURCES.rglob("__pycache__")):
        shutil.rmtree(directory)
    os.sync()
    DROP_CACHES.write_text("3")


def show_ready(what: str, taken: Turns[float], ratio: float) -> Row:
    return Row(
        what=what,
        klet=statistics.median(taken.klet),
        upstream=statistics.median(taken.upstream),
        unit="s",
        most_ratio=ratio,
    )
