"""Logs are rotated under a writer at full rate, on real containerd: every line is there once, also for a follower."""

import asyncio
import gzip
import os

import pytest

from klet.logs.line import parse_cri_line

LINES = int(os.environ.get("KLET_LOG_LINES", "1500000"))
SETTINGS = {"containerLogMaxSize": "2Mi", "containerLogMaxFiles": 500, "containerLogMonitorInterval": "3s"}


@pytest.fixture
def writer(manifest):
    # A loop of the shell would be slower than the runtime.
    script = (
        f"""echo begin; awk 'BEGIN {{ for (i = 1; i <= {LINES}; i++) print "line " i }}'; echo end; exec sleep 1000"""
    )
    return manifest("writer", main=script)


def contents(logs):
    """Return the lines of all files of the container, oldest first, and the names of the files."""
    [directory] = logs.glob("default_writer-node_*/main")
    files = sorted(directory.iterdir(), key=lambda path: (path.name == "0.log", path.name))
    data = (gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes() for file in files)
    # The runtime may begin a new file within a line: its parts are joined as every reader joins them.
    parts = (parse_cri_line(line).content for each in data for line in each.splitlines())
    return b"".join(parts).splitlines(keepends=True), [file.name for file in files]


async def follow(agent):
    """Return all that a follower sees, until the writer is done."""
    path = "http://agent/containerLogs/default/writer-node/main"
    seen = bytearray()
    async with agent.session.get(path, params={"follow": "true"}) as answer:
        assert answer.status == 200
        async for chunk in answer.content.iter_any():
            seen += chunk
            if seen.endswith(b"end\n"):
                return bytes(seen).splitlines(keepends=True)
    return bytes(seen).splitlines(keepends=True)


def check(lines, who):
    expected = [b"begin\n", *(b"line %d\n" % number for number in range(1, LINES + 1)), b"end\n"]
    if lines != expected:
        wrong = next((n for n, (a, b) in enumerate(zip(lines, expected, strict=False)) if a != b), len(lines))
        pytest.fail(f"{who}: {len(lines)} lines, {len(expected)} were written; at {wrong}: {lines[wrong : wrong + 3]}")


async def test_no_line_is_lost_or_doubled_by_rotation_at_full_rate(node, writer):
    async with node.run(**SETTINGS) as agent:
        node.write("writer", writer)
        await agent.recorded("writer", "Ready")
        async with asyncio.timeout(240), asyncio.TaskGroup() as group:
            followers = [group.create_task(follow(agent)) for _ in range(2)]
        await agent.stop()
        lines, names = contents(node.logs)
        assert len(names) > 2
        assert any(name.endswith(".gz") for name in names)
        assert not any(name.endswith(".tmp") for name in names)
        check(lines, "the files")
        for number, task in enumerate(followers):
            check(task.result(), f"follower {number}")
