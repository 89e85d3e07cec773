"""What HTTP probes cost: the whole probe manager with a readiness probe each second for every pod, against a server in
another process; beside it the floor, bare connections that send and read the same bytes at the same rate.
"""

import asyncio
import multiprocessing
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import cast

import uvloop
from msgspec.structs import replace

from bench.rows import Row
from klet.aio.clock import SystemClock
from klet.api.container_status import ContainerState, ContainerStateRunning, ContainerStatus
from klet.api.handlers import HTTPGetAction, Probe
from klet.api.pod import Pod, PodStatus
from klet.api.times import Time
from klet.host.http_client import HttpClient
from klet.journal.memory import MemoryJournal
from klet.model.pods import PodUID
from klet.model.probes import ProbeKind, ProbeResult
from klet.probes.handler import ProbeOutcome, ProbeTarget, Question
from klet.probes.manager import ProbeManager
from klet.probes.prober import Prober
from klet.probes.results import ProbeResults
from klet.runtime.restart import comes_back
from klet.status.board import StatusBoard
from klet.testing.builders import make_container, make_pod
from klet.wire import cri_v1_pb2 as cri

REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: kube-probe\r\nAccept: */*\r\nConnection: close\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
RATE = 1000
MOST = 25.0


class Server(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, _data: bytes) -> None:
        self.transport.write(ANSWER)
        self.transport.close()


def serve(pipe: Connection) -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0, backlog=4096)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(main())


class NoRuntime:
    async def exec_sync(self, _request: cri.ExecSyncRequest) -> cri.ExecSyncResponse:
        raise AssertionError("only HTTP is probed here")


class CountingProber:
    """Passes on to the real one."""

    def __init__(self, prober: Prober) -> None:
        self._prober = prober
        self.count = 0

    def prepare(self, target: ProbeTarget) -> Question:
        question = self._prober.prepare(target)

        def ask() -> Awaitable[ProbeOutcome]:
            self.count += 1
            return question()

        return ask

    def forget(self, pod: Pod, container: str, kind: ProbeKind) -> None:
        self._prober.forget(pod, container, kind)


class Floor(asyncio.Protocol):
    """The least that one exchange can be."""

    def __init__(self) -> None:
        self.done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(REQUEST)

    def data_received(self, data: bytes) -> None:
        if not self.done.done():
            self.done.set_result(data)


async def measure(seconds: int, count: Callable[[], int]) -> float:
    """CPU time a probe: the median of windows of a second, so that load of the machine falsifies only some of them."""
    await asyncio.sleep(2)
    windows = []
    for _ in range(seconds):
        before, cpu = count(), time.process_time()
        await asyncio.sleep(1)
        done = count() - before
        windows.append((time.process_time() - cpu) / done)
    return statistics.median(windows)


async def measure_floor(port: int, rate: int, seconds: int) -> float:
    count = 0

    async def ask(delay: float) -> None:
        nonlocal count
        loop = asyncio.get_running_loop()
        due = loop.time() + delay
        while True:
            await asyncio.sleep(due - loop.time())
            due += 1
            transport, protocol = await loop.create_connection(Floor, "127.0.0.1", port)
            await protocol.done
            transport.abort()
            count += 1

    return await during(
        lambda group: [group.create_task(ask(number / rate)) for number in range(rate)],
        measure(seconds, lambda: count),
    )


async def measure_probes(port: int, rate: int, seconds: int) -> float:
    clock = SystemClock()
    board, results = StatusBoard(clock=clock), ProbeResults()
    prober = CountingProber(Prober(runtime=NoRuntime(), http=HttpClient()))
    manager = ProbeManager(
        statuses=board,
        results=results,
        prober=prober,
        restarts=comes_back,
        recorder=MemoryJournal(clock=clock),
        clock=clock,
        randomness=random.Random(0),
        agent_started=clock.now(),
    )
    probe = Probe(http_get=HTTPGetAction(path="/", port=port), period_seconds=1, timeout_seconds=1, failure_threshold=3)
    started = Time.of(clock.now() - timedelta(hours=1))
    for number in range(rate):
        uid = f"uid-{number}"
        status = ContainerStatus(
            name="main",
            container_id=f"containerd://{number}",
            started=True,
            state=ContainerState(running=ContainerStateRunning(started_at=started)),
        )
        board.put(PodUID(uid), PodStatus(phase="Running", pod_ip="127.0.0.1", container_statuses=(status,)))
        manager.add_pod(make_pod(replace(make_container("main"), readiness_probe=probe), uid=uid))
    each = await during(lambda group: [group.create_task(manager.run())], measure(seconds, lambda: prober.count))
    if any(result is not ProbeResult.SUCCESS for result in results.view().values()):
        raise RuntimeError("some probes failed")
    return each


async def during(start: Callable[[asyncio.TaskGroup], list[asyncio.Task[None]]], measured: Awaitable[float]) -> float:
    async with asyncio.TaskGroup() as group:
        tasks = start(group)
        result = await measured
        for task in tasks:
            task.cancel()
    return result


def measure_probing(*, seconds: int) -> list[Row]:
    """Each side in turn, in loops of their own."""
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    port = ours.recv()
    try:
        floor = uvloop.run(measure_floor(port, RATE, seconds))
        klet = uvloop.run(measure_probes(port, RATE, seconds))
    finally:
        server.kill()  # it has inherited what its parent does with a polite request
        server.join()
    what = f"{RATE} http probes a second, CPU"
    return [Row(what=what, klet=100 * RATE * klet, floor=100 * RATE * floor, unit="%", most=MOST)]
