"""Children of the agent while calls to the runtime are under way: gRPC takes no notice of them."""

import subprocess
import sys

AGENT = """
import asyncio, sys
from datetime import timedelta
from pathlib import Path

from klet.__main__ import dispatch

assert dispatch("klet", ["run", "--no-such-flag"]) == 1  # it begins as any agent does

import uvloop

from klet.aio.clock import SystemClock
from klet.cri.client import connect
from klet.host.processes import run_process
from klet.testing.cri_server import serve_cri
from klet.testing.fake_runtime import FakeRuntime
from klet.wire import cri_v1_pb2 as cri


async def main(socket):
    clock = SystemClock()
    runtime = FakeRuntime(start=clock.now())
    async with (
        serve_cri(runtime, clock=clock, socket=socket) as endpoint,
        connect(runtime_endpoint=endpoint, timeout=timedelta(seconds=30)) as client,
    ):

        async def call():
            for _ in range(100):
                await client.version(cri.VersionRequest())

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(call())
            for _ in range(20):
                group.create_task(run_process(["true"], timeout=timedelta(seconds=30)))


uvloop.run(main(Path(sys.argv[1])))
"""


def test_a_child_beside_calls_makes_no_noise(tmp_path):
    command = [sys.executable, "-P", "-c", AGENT, str(tmp_path / "cri.sock")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    refusal, *more = ended.stderr.splitlines()
    assert "no-such-flag" in refusal
    assert more == []
