"""What an agent takes of the machine while everything it reports is scraped, as monitoring does it."""

import asyncio
import ssl
import statistics
import time
from dataclasses import dataclass

import aiohttp

from bench.cluster.lives import start_pods
from bench.cluster.load import REST
from bench.cluster.node import NodeUnderTest
from bench.cluster.turns import Ground
from bench.rows import Row
from klet.testing.metrics_comparison.recordings import SUMMARY, TEXTS

PERIOD = 15.0
COUNTS = (50, 100, 250)
PODS = 100
MOST_CPU = 3.0
CPU_RATIO = 0.5
MOST_RSS = 95.0
MOST_GROWTH = 1.25
"""Of what one more pod costs, from the fewest pods to the most."""
ROUTES = (*TEXTS, SUMMARY)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one agent with a number of pods."""

    share: float
    """Percent of a core, with everything that the agent does meanwhile."""
    per_pod: float
    """Milliseconds of CPU time of one round, for each pod."""
    rss: float


async def measure_scrape(ground: Ground, *, seconds: float, counts: tuple[int, ...] = COUNTS) -> list[Row]:
    """Real pods for all counts; both agents are asked for the same routes."""
    certificate, key = ground.cluster.scraper()
    context = ssl.create_default_context()
    context.check_hostname = False  # the certificate is one that the agent has made for itself
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(certificate, key)

    async def scraped(node: NodeUnderTest, _number: int) -> dict[int, Cost]:
        found: dict[int, Cost] = {}
        running = 0
        for count in counts:
            await start_pods(node, [f"scraped-{number}" for number in range(running, count)])
            running = count
            await asyncio.sleep(REST)
            found[count] = await _measure(node, count, context, seconds=seconds)
        return found

    turns = await ground.take_turns(scraped, rounds=1)
    (klet,), (upstream,) = turns.klet, turns.upstream
    return _rows(klet, upstream)


async def _measure(node: NodeUnderTest, count: int, context: ssl.SSLContext, *, seconds: float) -> Cost:
    costs: list[float] = []
    async with aiohttp.ClientSession(
        f"https://127.0.0.1:{node.ports.api}", connector=aiohttp.TCPConnector(ssl=context)
    ) as session:
        await _scrape(session)
        cpu, wall = node.process.whole_cpu_seconds(), time.perf_counter()
        # At least two rounds, however short the measurement is.
        for number in range(max(2, round(seconds / PERIOD))):
            before = node.process.whole_cpu_seconds()
            await _scrape(session)
            costs.append(node.process.whole_cpu_seconds() - before)
            await asyncio.sleep(max(0.0, wall + (number + 1) * PERIOD - time.perf_counter()))
        share = 100 * (node.process.whole_cpu_seconds() - cpu) / (time.perf_counter() - wall)
    return Cost(share=share, per_pod=1000 * statistics.median(costs) / count, rss=node.process.whole_rss())


async def _scrape(session: aiohttp.ClientSession) -> None:
    """Ask for all routes. Each must be served: a missing one would cost nothing, and look like a good result."""
    for route in ROUTES:
        async with session.get(route) as answer:
            body = await answer.read()
            if answer.status != 200:
                raise RuntimeError(f"GET {route}: {answer.status} {body[:1000].decode()}")


def _rows(klet: dict[int, Cost], upstream: dict[int, Cost]) -> list[Row]:
    rows = []
    for count, ours in klet.items():
        theirs = upstream[count]
        what = f"everything scraped every {PERIOD:g} s, {count} pods"
        is_limited = count == PODS
        rows += [
            Row(what=f"{what}, CPU", klet=ours.share, unit="%", most=MOST_CPU if is_limited else None),
            Row(
                what=f"{what}, CPU beside upstream",
                klet=ours.share,
                upstream=theirs.share,
                unit="%",
                most_ratio=CPU_RATIO if is_limited else None,
            ),
            Row(what=f"{what}, RSS", klet=ours.rss, unit="MiB", most=MOST_RSS if is_limited else None),
        ]
    fewest, most = min(klet), max(klet)
    rows.append(
        Row(
            what=f"CPU of a round for each pod, {most} pods beside {fewest}",
            klet=klet[most].per_pod,
            floor=klet[fewest].per_pod,
            upstream=upstream[most].per_pod,
            unit="ms",
            most_ratio=MOST_GROWTH,
        )
    )
    return rows
