"""The command lines of the benchmarks: which parts, how often, how long, and the form of the result."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence

from bench.rows import Row, render_json, render_table


def make_parser(program: str, description: str, parts: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--only", default=",".join(parts), help=f"parts, separated by commas: {', '.join(parts)}")
    parser.add_argument("--rounds", type=int, default=3, help="how often the sides take turns")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long CPU is measured for")
    parser.add_argument("--at-once", type=int, default=0, help="pods at a time of the floor; the best is searched for")
    parser.add_argument("-o", choices=("table", "json"), default="table", dest="output", help="form of the result")
    return parser


def parse(parser: argparse.ArgumentParser, parts: Sequence[str]) -> tuple[list[str], argparse.Namespace]:
    """The parts that were asked for, and the options."""
    options = parser.parse_args()
    asked = options.only.split(",")
    if unknown := [part for part in asked if part not in parts]:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(parts)}")
    return asked, options


def end_in_order() -> None:
    """End the agents and daemons of the measuring task on SIGTERM, as after Ctrl-C."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


def log_line(text: str) -> None:
    """What is known so far, beside the result."""
    print(text, file=sys.stderr, flush=True)


def conclude(rows: Sequence[Row], output: str) -> int:
    """Print the result; the exit code."""
    print(render_json(rows) if output == "json" else render_table(rows))
    return 1 if any(row.is_met is False for row in rows) else 0
