"""What is kept by a process that is killed at any moment."""

import signal
import subprocess
import sys

import pytest

from klet.aio.threads import Threads
from klet.offline.sealing import load_sealer
from klet.offline.store import open_store
from klet.testing.clock import ManualClock

PROGRAM = """
import asyncio, itertools, pathlib, sys
from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.api.config import Secret
from klet.offline.snapshot import AcceptedPods
from klet.offline.sealing import load_sealer
from klet.offline.store import open_store
from klet.testing.builders import make_pod

async def main():
    clock, threads = SystemClock(), Threads(limit=2)
    store = await open_store(
        pathlib.Path(sys.argv[1]), node_name="n", make_sealer=load_sealer, threads=threads, clock=clock
    )
    for number in itertools.count(1):
        pods = tuple(make_pod(name=f"p{each}", uid=f"u{each}") for each in range(number))
        await store.secrets.keep("ns/key", Secret(data={"number": str(number).encode()}), version=str(number))
        await store.pods.save(AcceptedPods(node_name="n", at=clock.now(), pods=pods))
        print(number, flush=True)

asyncio.run(main())
"""


def run_and_kill(path, *, after: int) -> int:
    """Kill the writer when it has said that so many are written; return the last that it printed."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(after):
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split()
    return int(rest[-1]) if rest else after


@pytest.mark.parametrize("after", [1, 2, 5, 20])
async def test_what_was_said_to_be_written_is_there(tmp_path, after):
    written = run_and_kill(tmp_path / "offline", after=after)
    threads = Threads(limit=2)
    store = await open_store(
        tmp_path / "offline", node_name="n", make_sealer=load_sealer, threads=threads, clock=ManualClock()
    )
    assert store.left_pods is not None
    assert written <= len(store.left_pods.pods) <= written + 1
    known = await store.secrets.find("ns/key")
    assert known is not None
    assert known.value is not None
    assert written <= int(known.value.data["number"]) <= written + 2
    threads.close()
