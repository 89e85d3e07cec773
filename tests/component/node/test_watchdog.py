"""The watchdog with a NOTIFY_SOCKET that a test holds."""

import asyncio
import random
import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest

from klet.aio.clock import SystemClock
from klet.host.systemd_notify import find_service_manager, read_watchdog
from klet.node.watchdog import Watchdog, check_allowed


@pytest.fixture
def service(tmp_path) -> Iterator[tuple[dict[str, str], socket.socket]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as manager:
        manager.bind(path := str(tmp_path / "notify"))
        yield {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "1100000"}, manager


async def test_signs_of_life_come_and_stop_with_health(service):
    environment, manager = service
    loop = asyncio.get_running_loop()
    problem: list[str] = []

    async def check() -> str | None:
        return problem[0] if problem else None

    watchdog = Watchdog(
        manager=find_service_manager(environment),
        allowed=check_allowed(read_watchdog(environment, pid=1) or timedelta()),
        checks={"syncloop": check},
        clock=SystemClock(),
        randomness=random.Random(1),
    )
    async with asyncio.TaskGroup() as group, asyncio.timeout(10):
        task = group.create_task(watchdog.run())
        assert [await loop.sock_recv(manager, 100) for _ in range(2)] == [b"WATCHDOG=1"] * 2
        task.cancel()
    problem.append("sync Loop took longer than expected")
    await watchdog.beat()
    with pytest.raises(BlockingIOError):
        manager.recv(100)
