"""The attackers, in a process of their own: python -m bench.hostile.attack --port PORT --seconds S --connections N.

They attack a port of the loopback, for so long and no longer. A line says when they begin; a line of JSON at the end
says what they did.
"""

import argparse
import asyncio
import os
import random
import resource
import signal
import ssl
import statistics
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import uvloop

from bench.hostile.ways import KINDS, Way, share_out
from bench.hostile.wire import HOST, Tally, Wire, hostile_address, make_context

PAUSE = (0.05, 0.2)
"""Seconds before a connection that has ended is opened again."""
LOOK_EVERY = 0.5
OVERTIME = 20
"""Seconds after which the kernel ends attackers that did not end by themselves."""
SPARE_FILES = 100


class Done(msgspec.Struct, frozen=True):
    """What the attackers did."""

    seconds: float
    opened: int
    refused: int
    handshakes: int
    sent: int
    answers: dict[str, int]
    held: float
    """Connections that were open, the median of several looks."""
    cpu_seconds: float


async def attack(ways: Sequence[Way], *, port: int, seconds: float) -> Done:
    tally, context = Tally(), make_context()
    held: list[int] = []
    began, cpu = time.perf_counter(), time.process_time()
    print("ready", flush=True)
    try:
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            group.create_task(_look(tally, held))
            for number, way in enumerate(ways):
                attacker = Attacker(way, hostile_address(number), port, random.Random(number))
                group.create_task(_keep_attacking(attacker, context, tally))
    except TimeoutError:
        pass  # as it was meant
    return Done(
        seconds=time.perf_counter() - began,
        opened=tally.opened,
        refused=tally.refused,
        handshakes=tally.handshakes,
        sent=tally.sent,
        answers=dict(tally.answers),
        held=statistics.median(held) if held else 0,
        cpu_seconds=time.process_time() - cpu,
    )


class Attacker(NamedTuple):
    """What one of them does, from where and to whom."""

    way: Way
    address: str
    port: int
    randomness: random.Random


async def _keep_attacking(attacker: Attacker, context: ssl.SSLContext, tally: Tally) -> None:
    """One connection at a time, until cancelled."""
    while True:
        await asyncio.sleep(attacker.randomness.uniform(*PAUSE))
        try:
            reader, writer = await asyncio.open_connection(HOST, attacker.port, local_addr=(attacker.address, 0))
        except OSError:
            tally.refused += 1
            continue
        tally.opened += 1
        tally.open += 1
        wire = Wire(reader, writer, context=context, tally=tally)
        try:
            await attacker.way(wire, attacker.randomness)
        except (OSError, ssl.SSLError):
            pass  # the server defends itself
        finally:
            tally.open -= 1
            wire.hang_up()


async def _look(tally: Tally, held: list[int]) -> None:
    while True:
        await asyncio.sleep(LOOK_EVERY)
        held.append(tally.open)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hostile.attack", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--only", default=",".join(KINDS))
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < options.connections + SPARE_FILES:
        parser.error(f"{hard} files may be open: too few for {options.connections} connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.alarm(int(options.seconds) + OVERTIME)
    ways = share_out(options.only.split(","), options.connections)
    done = uvloop.run(attack(ways, port=options.port, seconds=options.seconds))
    print(msgspec.json.encode(done).decode(), flush=True)
    # Thousands of half-open connections need no orderly end.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
