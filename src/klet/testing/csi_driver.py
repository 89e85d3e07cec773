"""The CSI test driver as a process of its own: `python -m klet.testing.csi_driver --socket S --root R`.

It registers with the agent when `--registry` is its `plugins_registry`. What it has staged and published it keeps in
`<root>/state.json` and finds there again: it may be killed at any time. When it can be called, it writes a line.
"""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from klet.csi.client import NodeCapability
from klet.testing.csi.backing import MountBacking, PlainBacking, VolumeBacking
from klet.testing.csi.driver import NAME
from klet.testing.csi.faults import DriverFault, Mishap, Moment
from klet.testing.csi.memory import DriverMemory
from klet.testing.csi.serving import DriverServer
from klet.wire.codes import Code

_KILLED = 137


async def serve(arguments: argparse.Namespace) -> None:
    """Serve until SIGTERM."""
    kind = PlainBacking if arguments.plain else MountBacking
    backing: VolumeBacking = kind(root=arguments.root / "volumes")
    memory = DriverMemory(file=arguments.root / "state.json")
    server = DriverServer(backing=backing, memory=memory, socket=arguments.socket, name=arguments.name, on_death=_exit)
    driver = server.driver
    driver.capabilities = frozenset(NodeCapability(each) for each in arguments.capability)
    driver.node_info.max_volumes_per_node = arguments.max_volumes
    for fault in arguments.fault:
        driver.faults.add(fault)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await server.start()
    if arguments.registry is not None:
        await server.register(arguments.registry)
    sys.stdout.write("serving\n")
    sys.stdout.flush()
    await stopped.wait()
    await server.stop()


def parse_fault(text: str) -> DriverFault:
    """Read `NodeStageVolume:before:hang`, `…:after:die` or `…:partial:Internal`."""
    rpc, at, does = text.split(":")
    return DriverFault(rpc=rpc, at=Moment(at), does=Mishap(does) if does in list(Mishap) else Code(does))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="klet.testing.csi_driver")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--root", type=Path, required=True, help="where its volumes and its state are kept")
    parser.add_argument("--registry", type=Path, help="the agent's plugins_registry directory")
    parser.add_argument("--name", default=NAME)
    parser.add_argument("--capability", action="append", default=[], choices=list(NodeCapability))
    parser.add_argument("--max-volumes", type=int, default=0)
    parser.add_argument("--plain", action="store_true", help="directories instead of mounts; needs no root")
    parser.add_argument("--fault", action="append", default=[], type=parse_fault, metavar="RPC:MOMENT:FAULT")
    return parser.parse_args()


async def _exit() -> None:
    os._exit(_KILLED)


if __name__ == "__main__":
    asyncio.run(serve(parse_arguments()))
