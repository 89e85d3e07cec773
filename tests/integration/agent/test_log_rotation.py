"""Logs are rotated under a writer at full rate, on real containerd: every line is there once, also for a follower."""

import asyncio
import gzip
from contextlib import aclosing

import pytest

from klet.host.inotify import watch_directory
from klet.logs.line import parse_cri_line

BLOCK = 100_000
SETTINGS = {"containerLogMaxSize": "2Mi", "containerLogMaxFiles": 500, "containerLogMonitorInterval": "3s"}

# It writes until the test has seen enough rotations, so that neither a fast nor a slow machine makes the test easier.
# awk counts within a block: a loop of the shell would be slower than the runtime.
SCRIPT = f"""
    last=0
    echo begin
    until [ -e /test/stop ]; do
        awk -v last=$last 'BEGIN {{ for (i = last + 1; i <= last + {BLOCK}; i++) print "line " i }}'
        last=$((last + {BLOCK}))
    done
    echo end $last
    exec sleep 1000
"""


@pytest.fixture
def stop(tmp_path):
    """The file that ends the writer, once it is there."""
    directory = tmp_path / "test"
    directory.mkdir()
    return directory / "stop"


@pytest.fixture
def writer(manifest, stop):
    pod = manifest("writer", main=SCRIPT)
    pod["spec"]["volumes"] = [{"name": "test", "hostPath": {"path": str(stop.parent)}}]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "test", "mountPath": "/test"}]
    return pod


def log_directory(logs):
    [directory] = logs.glob("default_writer-node_*/main")
    return directory


async def rotated(directory):
    """Wait until the log has been rotated three times, and compressed."""
    async with aclosing(watch_directory(directory)) as changes:
        async for _ in changes:
            names = [path.name for path in directory.iterdir()]
            if len(names) > 3 and any(name.endswith(".gz") for name in names):
                return


def contents(logs):
    """Return the lines of all files of the container, oldest first, and the names of the files."""
    files = sorted(log_directory(logs).iterdir(), key=lambda path: (path.name == "0.log", path.name))
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
            if seen.endswith(b"\n") and seen.rfind(b"\nend ") > len(seen) - 32:
                return bytes(seen).splitlines(keepends=True)
    return bytes(seen).splitlines(keepends=True)


def check(lines, who):
    written = int(lines[-1].removeprefix(b"end "))
    expected = [b"begin\n", *(b"line %d\n" % number for number in range(1, written + 1)), b"end %d\n" % written]
    if lines != expected:
        wrong = next((n for n, (a, b) in enumerate(zip(lines, expected, strict=False)) if a != b), len(lines))
        pytest.fail(f"{who}: {len(lines)} lines, {len(expected)} were written; at {wrong}: {lines[wrong : wrong + 3]}")


async def test_no_line_is_lost_or_doubled_by_rotation_at_full_rate(node, writer, stop):
    async with node.run(**SETTINGS) as agent:
        node.write("writer", writer)
        await agent.recorded("writer", "Ready")
        async with asyncio.timeout(240), asyncio.TaskGroup() as group:
            followers = [group.create_task(follow(agent)) for _ in range(2)]
            await rotated(log_directory(node.logs))
            stop.touch()
        await agent.stop()
        lines, names = contents(node.logs)
        assert not any(name.endswith(".tmp") for name in names)
        check(lines, "the files")
        for number, task in enumerate(followers):
            check(task.result(), f"follower {number}")
