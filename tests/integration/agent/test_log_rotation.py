"""Logs are rotated under a writer at full rate, on real containerd: every line is there once, also for a follower."""

import asyncio
import gzip
from contextlib import aclosing

import pytest

from klet.host.inotify import watch_directory
from klet.logs.line import parse_cri_line

BLOCK = 100_000
SETTINGS = {"containerLogMaxSize": "2Mi", "containerLogMaxFiles": 500, "containerLogMonitorInterval": "3s"}

# It begins once all follow, and writes until the test has seen enough rotations, so that neither a fast nor a slow
# machine makes the test easier. awk counts within a block: a loop of the shell would be slower than the runtime.
SCRIPT = f"""
    last=0
    echo begin
    until [ -e /test/go ]; do sleep 0.1; done
    until [ -e /test/stop ]; do
        awk -v last=$last 'BEGIN {{ for (i = last + 1; i <= last + {BLOCK}; i++) print "line " i }}'
        last=$((last + {BLOCK}))
    done
    echo end $last
    exec sleep 1000
"""


@pytest.fixture
def signals(tmp_path):
    """Where the writer looks for the files `go` and `stop`."""
    directory = tmp_path / "test"
    directory.mkdir()
    return directory


@pytest.fixture
def writer(manifest, signals):
    pod = manifest("writer", main=SCRIPT)
    pod["spec"]["volumes"] = [{"name": "test", "hostPath": {"path": str(signals)}}]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "test", "mountPath": "/test"}]
    return pod


class NumberedLines:
    """Checks what the writer wrote piece by piece, and keeps none of it."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._rest = b""
        self._next = 0
        self.has_begun = asyncio.Event()
        self.is_whole = False

    def feed(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if not lines:
            return
        expected = [b"line %d" % number for number in range(self._next, self._next + len(lines))]
        if self._next == 0:
            expected[0] = b"begin"
        if lines[-1] == b"end %d" % (self._next + len(lines) - 2):
            expected[-1] = lines[-1]
            self.is_whole = True
        if lines != expected:
            pairs = zip(lines, expected, strict=True)
            found, wanted = next((found, wanted) for found, wanted in pairs if found != wanted)
            pytest.fail(f"{self._who}: {found!r} in place of {wanted!r}")
        self._next += len(lines)
        self.has_begun.set()

    def check_whole(self) -> None:
        assert self.is_whole, f"{self._who}: no end after line {self._next - 1}"
        assert not self._rest


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


def read_files(directory, lines):
    """Read all files of the container, oldest first."""
    for file in sorted(directory.iterdir(), key=lambda path: (path.name == "0.log", path.name)):
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        # The runtime may begin a new file within a line: its parts are joined as every reader joins them.
        lines.feed(b"".join(parse_cri_line(line).content for line in data.splitlines()))


async def follow(agent, lines):
    """Read what a follower sees, until the writer is done."""
    path = "http://agent/containerLogs/default/writer-node/main"
    async with agent.session.get(path, params={"follow": "true"}) as answer:
        assert answer.status == 200
        async for piece in answer.content.iter_any():
            lines.feed(piece)
            if lines.is_whole:
                return


async def test_no_line_is_lost_or_doubled_by_rotation_at_full_rate(node, writer, signals):
    followers = [NumberedLines(f"follower {number}") for number in range(2)]
    async with node.run(**SETTINGS) as agent:
        node.write("writer", writer)
        await agent.recorded("writer", "Ready")
        async with asyncio.timeout(240), asyncio.TaskGroup() as group:
            for lines in followers:
                group.create_task(follow(agent, lines))
            for lines in followers:
                await lines.has_begun.wait()
            (signals / "go").touch()
            await rotated(log_directory(node.logs))
            (signals / "stop").touch()
        await agent.stop()
    assert not any(path.name.endswith(".tmp") for path in log_directory(node.logs).iterdir())
    files = NumberedLines("the files")
    read_files(log_directory(node.logs), files)
    for lines in (*followers, files):
        lines.check_whole()
