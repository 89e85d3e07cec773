"""Starts, ends and deletions of pods, from the request of a client to what a watching client sees."""

import statistics
import time
from collections.abc import Sequence

from bench.cluster.node import PODS, NodeUnderTest
from bench.cluster.turns import Ground
from bench.cluster.watch import has_succeeded, is_gone, is_running
from bench.exits import SCRIPTS, find_ends
from bench.manifests import SCRIPT, make_manifest
from bench.rows import Round, Row, compare_rounds

ONES = 6
ONE_RATIO = 0.35 / 0.21
MANY_RATIOS = {30: (2.6 / 2.1, 4.8 / 3.9), 100: (9 / 7.5, 17 / 14.8)}
"""For the median pod, and for all."""
DELETIONS = 3
DELETION_RATIO = 2.6 / 2.24
EXIT_RATIO = 0.15 / 1.86
STUBBORN = "trap '' TERM; while true; do sleep 1; done"


async def start_pods(node: NodeUnderTest, names: list[str], script: str = SCRIPT) -> Round:
    """Each from its own request to the moment a client sees that it runs."""
    return await start_manifests(node, names, [make_manifest(name, script) for name in names])


async def start_manifests(node: NodeUnderTest, names: Sequence[str], manifests: Sequence[dict[str, object]]) -> Round:
    """Start pods of any kind, all at once."""
    began = await node.create(manifests)
    found = await node.pods.until(names, is_running)
    each = tuple(found[name] - at for name, at in zip(names, began, strict=True))
    return Round(each, whole=max(found.values()) - min(began))


async def measure_one(ground: Ground) -> list[Row]:
    """The first pod of each round only warms both sides up."""

    async def one(node: NodeUnderTest, _number: int) -> Round:
        each = []
        for pod in range(ONES + 1):
            name = f"one-{pod}"
            each.append((await start_pods(node, [name])).p50)
            await delete_pod(node, name)
        return Round(tuple(each[1:]))

    async def floor() -> Round:
        each = [(await ground.floor.start(1, at_once=1)).p50 for _ in range(ONES + 1)]
        return Round(tuple(each[1:]))

    turns = await ground.take_turns(one, floor)
    return compare_rounds(
        "1 pod: create -> Running",
        turns.klet,
        turns.floor,
        upstream=turns.upstream,
        most_ratio=ONE_RATIO,
        with_all=False,
    )


async def measure_many(ground: Ground, count: int) -> list[Row]:
    async def many(node: NodeUnderTest, _number: int) -> Round:
        return await start_pods(node, [f"many-{pod}" for pod in range(count)])

    async def floor() -> Round:
        return await ground.floor.start(count, at_once=ground.at_once)

    turns = await ground.take_turns(many, floor)
    p50, last = MANY_RATIOS[count]
    return compare_rounds(
        f"{count} pods at once",
        turns.klet,
        turns.floor,
        upstream=turns.upstream,
        most_ratio=p50,
        most_ratio_all=last,
    )


async def measure_deletion(ground: Ground) -> list[Row]:
    """A container that ignores TERM, and a grace period below the two seconds that every kubelet gives."""

    async def deleted(node: NodeUnderTest, _number: int) -> Round:
        each = []
        for number in range(DELETIONS):
            name = f"stubborn-{number}"
            await start_pods(node, [name], STUBBORN)
            each.append(await delete_pod(node, name))
        return Round(tuple(each))

    async def floor() -> Round:
        return Round(tuple([await ground.floor.stop_one(STUBBORN) for _ in range(DELETIONS)]))

    turns = await ground.take_turns(deleted, floor)
    return compare_rounds(
        "1 pod deleted, ignores TERM",
        turns.klet,
        turns.floor,
        upstream=turns.upstream,
        most_ratio=DELETION_RATIO,
        with_all=False,
    )


async def delete_pod(node: NodeUnderTest, name: str) -> float:
    """Seconds until a client sees that it is gone."""
    began = time.time()
    await node.api.send("DELETE", f"{PODS}/{name}")
    return (await node.pods.until([name], is_gone))[name] - began


async def measure_exits(ground: Ground) -> list[Row]:
    """From the end of a container as containerd dates it to the terminal phase; one end after the other."""

    async def exits(node: NodeUnderTest, _number: int) -> Round:
        scripts = {f"exit-{number}": script for number, script in enumerate(SCRIPTS)}
        await node.create([make_manifest(name, script, policy="Never") for name, script in scripts.items()])
        found = await node.pods.until(scripts, has_succeeded)
        ended = await find_ends(ground.client)
        return Round(tuple(found[name] - ended[name] for name in scripts))

    turns = await ground.take_turns(exits)
    return [
        Row(
            what="exit -> terminal phase, p50",
            klet=statistics.median(each.p50 for each in turns.klet),
            upstream=statistics.median(each.p50 for each in turns.upstream),
            unit="s",
            most_ratio=EXIT_RATIO,
            most=0.15,
        )
    ]
