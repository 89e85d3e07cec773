"""Measures klet beside the floor and says whether each budget is met; exit code 1 if one is not.

Run as root on a machine that has nothing else to do: python -m bench [--only PART,…] [-o json]
"""

import argparse
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from bench.exits import measure_exits
from bench.floor import SEARCHED, Floor
from bench.idle import measure_idle, measure_probed
from bench.node import Node
from bench.options import conclude, end_in_order, log_line, make_parser, parse
from bench.probes import measure_probing
from bench.restart import measure_restart
from bench.rows import Row, render_table
from bench.starts import measure_many, measure_one
from klet.cri.client import connect
from klet.testing.containerd import REQUEST_TIMEOUT, run_containerd, why_impossible

PARTS = ("one", "thirty", "hundred", "exits", "probes", "probed", "idle", "restart")


async def measure(parts: list[str], options: argparse.Namespace) -> list[Row]:
    """The parts that need a containerd, one after the other."""
    end_in_order()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="klet-bench-") as name:
        directory = Path(name)
        async with (
            run_containerd(directory / "c") as containerd,
            connect(runtime_endpoint=containerd.endpoint, timeout=REQUEST_TIMEOUT) as client,
        ):
            floor = Floor(client=client, containerd=containerd, is_bare=options.bare)
            node = Node(directory=directory, containerd=containerd, client=client)
            at_once = options.at_once
            if not at_once and {"thirty", "hundred"}.intersection(parts):
                at_once = await floor.find_best(SEARCHED)
                log_line(f"the floor is best with {at_once} pods at a time")
            rounds = options.rounds
            known: dict[str, Callable[[], Awaitable[list[Row]]]] = {
                "one": lambda: measure_one(floor, node, rounds=rounds),
                "thirty": lambda: measure_many(floor, node, count=30, at_once=at_once, rounds=rounds),
                "hundred": lambda: measure_many(floor, node, count=100, at_once=at_once, rounds=rounds),
                "exits": lambda: measure_exits(client, floor, node, rounds=rounds),
                "probed": lambda: measure_probed(node, seconds=options.seconds),
                "idle": lambda: measure_idle(node, seconds=options.seconds),
                "restart": lambda: measure_restart(node, rounds=rounds),
            }
            for part in parts:
                found = await known[part]()
                log_line(render_table(found))
                rows += found
    return rows


def main() -> int:
    parser = make_parser("python -m bench", __doc__.split("\n", 1)[0], PARTS)
    parser.add_argument("--bare", action="store_true", help="a floor that asks for less than any kubelet")
    parts, options = parse(parser, PARTS)
    if parts != ["probes"] and (why := why_impossible()):
        parser.error(why)
    rows: list[Row] = []
    if others := [part for part in parts if part != "probes"]:
        rows += uvloop.run(measure(others, options))
    if "probes" in parts:
        rows += measure_probing(seconds=10)
    return conclude(rows, options.output)


if __name__ == "__main__":
    sys.exit(main())
