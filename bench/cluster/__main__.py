"""Measures klet beside the upstream kubelet and the floor, and says whether each budget is met; else exit code 1.

One containerd, etcd and kube-apiserver for all. Run as root on a machine that has nothing else to do, with upstream's
programs from scripts/upstream: python -m bench.cluster [--only PART,…] [-o json]
"""

import argparse
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from bench.cluster.config_maps import measure_config_maps
from bench.cluster.follow import measure_follow
from bench.cluster.lives import measure_deletion, measure_exits, measure_many, measure_one
from bench.cluster.load import measure_idle, measure_probed, measure_ready
from bench.cluster.node import Cluster
from bench.cluster.publication import measure_publication
from bench.cluster.restart import measure_restart
from bench.cluster.scrape import measure_scrape
from bench.cluster.turns import Ground, Turns
from bench.cluster.volumes import measure_volumes
from bench.floor import SEARCHED, Floor
from bench.options import conclude, end_in_order, log_line, make_parser, parse
from bench.rows import Row, render_table
from klet.cri.client import connect
from klet.testing import containerd as runtime
from klet.testing.control_plane import programs
from klet.testing.control_plane.cluster import run_control_plane
from klet.testing.control_plane.default_objects import create_default_objects

PARTS = (
    "one",
    "thirty",
    "hundred",
    "volumes",
    "deletion",
    "exits",
    "configmap",
    "news-10",
    "news-100",
    "follow",
    "probed",
    "restart",
    "idle",
    "scrape",
    "ready",
)


async def measure(parts: list[str], options: argparse.Namespace) -> list[Row]:
    end_in_order()
    with tempfile.TemporaryDirectory(prefix="klet-bench-") as name:
        directory = Path(name)
        async with (
            runtime.run_containerd(directory / "c") as containerd,
            connect(runtime_endpoint=containerd.endpoint, timeout=runtime.REQUEST_TIMEOUT) as client,
            run_control_plane(directory / "plane") as plane,
            plane.client() as admin,
            plane.transport() as transport,
        ):
            await create_default_objects(admin, plane.identities.authority.read_text())
            floor = Floor(client=client, containerd=containerd)
            at_once = options.at_once
            if not at_once and {"thirty", "hundred", "volumes"}.intersection(parts):
                at_once = await floor.find_best(SEARCHED)
                log_line(f"the floor is best with {at_once} pods at a time")
            ground = Ground(
                cluster=Cluster(
                    directory=directory, identities=plane.identities, transport=transport, containerd=containerd
                ),
                floor=floor,
                client=client,
                rounds=options.rounds,
                at_once=at_once,
                ready_after=Turns(),
            )
            return await measure_parts(ground, parts, seconds=options.seconds)


async def measure_parts(ground: Ground, parts: list[str], *, seconds: float) -> list[Row]:
    known: dict[str, Callable[[], Awaitable[list[Row]]]] = {
        "one": lambda: measure_one(ground),
        "thirty": lambda: measure_many(ground, 30),
        "hundred": lambda: measure_many(ground, 100),
        "volumes": lambda: measure_volumes(ground),
        "deletion": lambda: measure_deletion(ground),
        "exits": lambda: measure_exits(ground),
        "configmap": lambda: measure_config_maps(ground),
        "news-10": lambda: measure_publication(ground, 10),
        "news-100": lambda: measure_publication(ground, 100),
        "follow": lambda: measure_follow(ground),
        "probed": lambda: measure_probed(ground, seconds=seconds),
        "restart": lambda: measure_restart(ground),
        "idle": lambda: measure_idle(ground, seconds=seconds),
        "scrape": lambda: measure_scrape(ground, seconds=seconds),
        "ready": lambda: measure_ready(ground),
    }
    rows: list[Row] = []
    for part in parts:
        found = await known[part]()
        log_line(render_table(found))
        rows += found
    return rows


def main() -> int:
    parser = make_parser("python -m bench.cluster", __doc__.split("\n", 1)[0], PARTS)
    parts, options = parse(parser, PARTS)
    if why := runtime.why_impossible() or programs.why_impossible(programs.KUBELET):
        parser.error(why)
    return conclude(uvloop.run(measure(parts, options)), options.output)


if __name__ == "__main__":
    sys.exit(main())
