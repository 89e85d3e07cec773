"""Attacks the kubelet API and says whether the node holds; exit code 1 if a budget is missed.

klet on a private containerd, joined to an API server, and the attackers in a process of their own. Run as root on a
machine that has nothing else to do: python -m bench.hostile [--only KIND,…] [-o json]
"""

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path

import msgspec
import uvloop

from bench.cluster.node import Cluster, NodeUnderTest
from bench.cluster.programs import KLET_RUN
from bench.hostile.api_server import ApiServer, run_api_server
from bench.hostile.attack import OVERTIME, Done
from bench.hostile.meters import Meters, Phase, until_settled
from bench.hostile.report import show_attack, show_node
from bench.hostile.ways import KINDS
from bench.options import conclude, end_in_order, log_line
from bench.rows import Row
from klet.cri.client import connect
from klet.testing import containerd as runtime
from klet.testing.control_plane.identities import ADMINS

NICENESS = 10
"""Attackers are on other machines: here they shall not take the processors from those who measure."""
REST = 10.0


async def measure(options: argparse.Namespace) -> list[Row]:
    end_in_order()
    with tempfile.TemporaryDirectory(prefix="klet-bench-") as name:
        directory = Path(name)
        async with (
            runtime.run_containerd(directory / "c") as containerd,
            connect(runtime_endpoint=containerd.endpoint, timeout=runtime.REQUEST_TIMEOUT) as client,
            run_api_server(directory / "api") as server,
        ):
            log_line(f"the API server is {server.name}")
            cluster = Cluster(
                directory=directory, identities=server.identities, transport=server.transport, containerd=containerd
            )
            async with cluster.node(KLET_RUN, client) as node:
                return await measure_node(node, server, options)


async def measure_node(node: NodeUnderTest, server: ApiServer, options: argparse.Namespace) -> list[Row]:
    certificate, key = server.identities.client("bench:client", ADMINS)
    meters = Meters(node=node, certificate=certificate, key=key)
    quiet = await meters.measure("quiet", seconds=options.quiet)
    log_failures("without attackers", quiet)
    before = await until_settled(node.process)
    log_line(f"the agent has {before:.0f} MiB; the attack begins")
    hostile, done = await under_attack(meters, node.ports.api, options)
    log_failures("under attack", hostile)
    log_line(f"answers to the attackers: {done.answers}")
    await asyncio.sleep(REST)
    node.process.check()
    return [*show_node(quiet, hostile, before=before, after=node.process.whole_rss()), *show_attack(done)]


async def under_attack(meters: Meters, port: int, options: argparse.Namespace) -> tuple[Phase, Done]:
    """Measured from the first hostile connection on."""
    extent = (f"--seconds={options.seconds}", f"--connections={options.connections}", f"--only={options.only}")
    bound = ("setpriv", "--pdeathsig", "KILL", "nice", "-n", str(NICENESS))
    attackers = await asyncio.create_subprocess_exec(
        *bound, sys.executable, "-m", "bench.hostile.attack", f"--port={port}", *extent, stdout=asyncio.subprocess.PIPE
    )
    assert attackers.stdout is not None
    try:
        if await attackers.stdout.readline() != b"ready\n":
            raise RuntimeError("the attackers did not begin")
        phase = await meters.measure("hostile", seconds=options.seconds)
        async with asyncio.timeout(OVERTIME):
            done = msgspec.json.decode(await attackers.stdout.readline(), type=Done)
            await attackers.wait()
    finally:
        if attackers.returncode is None:
            attackers.kill()
            await attackers.wait()
    return phase, done


def log_failures(when: str, phase: Phase) -> None:
    named = {"health": phase.health, "certificate": phase.certified, "kept": phase.kept, "pods": phase.pods}
    for what, samples in named.items():
        for failure, count in Counter(samples.failures).most_common(3):
            log_line(f"{when}, {what}: {count} x {failure}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hostile", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the attack goes on")
    parser.add_argument("--quiet", type=float, default=15.0, help="how long is measured without attackers before")
    parser.add_argument("--connections", type=int, default=2000, help="hostile connections at a time")
    parser.add_argument("--only", default=",".join(KINDS), help=f"kinds, separated by commas: {', '.join(KINDS)}")
    parser.add_argument("-o", choices=("table", "json"), default="table", dest="output", help="form of the result")
    options = parser.parse_args()
    if unknown := [kind for kind in options.only.split(",") if kind not in KINDS]:
        parser.error(f"no such kind: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    if why := runtime.why_impossible():
        parser.error(why)
    return conclude(uvloop.run(measure(options)), options.output)


if __name__ == "__main__":
    sys.exit(main())
