"""How fast a container log is read: the whole file, with timestamps, a tail of a large file, and a follower's delay."""

import asyncio
import os
import tempfile
import time
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from klet.aio.clock import SystemClock
from klet.logs.reader import read_logs
from klet.logs.render import LogOptions

LINE = b"2030-01-01T00:00:%02d.%09dZ stdout F GET /index.html HTTP/1.1 200 612 client=10.88.0.%d agent=curl/7.88.1\n"
LINES = 1_000_000


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "0.log"
        with path.open("wb") as file:
            file.writelines(LINE % (number // 20_000, number, number % 250) for number in range(LINES))
        size = path.stat().st_size
        print(f"file: {size / 1e6:.0f} MB, {LINES} lines of {size // LINES} bytes")
        for name, options in (
            ("all", LogOptions()),
            ("timestamps", LogOptions(timestamps=True)),
            ("since, half dropped", LogOptions(since=datetime(2030, 1, 1, 0, 0, 25, tzinfo=UTC))),
            ("tail 100", LogOptions(tail=100)),
            ("tail 500000", LogOptions(tail=500_000)),
        ):
            started = time.perf_counter()
            given = 0
            async for piece in read_logs(path, options, is_running=running, clock=SystemClock()):
                given += len(piece)
            took = time.perf_counter() - started
            print(f"{name}: {took * 1000:.1f} ms, {size / took / 1e6:.0f} MB/s of file, {given / 1e6:.1f} MB out")
        await measure_delay(path)


async def measure_delay(path: Path) -> None:
    delays = []
    log = read_logs(path, LogOptions(follow=True, tail=1), is_running=running, clock=SystemClock())
    async with aclosing(log):
        await anext(log)
        with path.open("ab", buffering=0) as file:
            for number in range(200):
                async with asyncio.TaskGroup() as group:
                    piece = group.create_task(anext(log))
                    await SystemClock().sleep(timedelta(milliseconds=2))
                    started = time.perf_counter()
                    os.write(file.fileno(), LINE % (59, number, 1))
                    await piece
                    delays.append(time.perf_counter() - started)
    delays.sort()
    print(f"follow: {delays[100] * 1e6:.0f} us from write to piece, p50; {delays[198] * 1e6:.0f} us, p99")


async def running() -> bool:
    return True


if __name__ == "__main__":
    asyncio.run(main())
