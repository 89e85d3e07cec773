"""What is measured while nothing happens and while the attack goes on: clients, pods, and what the agent takes.

Clients ask at a steady rate whether the last was answered or not: an agent that stalls is not asked less often.
"""

import asyncio
import math
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from bench.cluster.node import PODS, NodeUnderTest
from bench.cluster.watch import is_gone, is_running
from bench.hostile.wire import hostile_address
from bench.manifests import make_manifest
from bench.process import AgentProcess

HEALTH_EVERY = 1 / 20
PODS_EVERY = 1 / 2
START_EVERY = 3.0
PATIENCE = 10.0
"""Seconds after which a request counts as failed."""
START_WITHIN = 10.0
"""Seconds after which a pod counts as failed; a start that waits for the end of the attack is none."""
POD_PATIENCE = 30.0
POD_LIFE = 6.0
LOOK_EVERY = 0.25


@dataclass(slots=True)
class Samples:
    """How long something took each time; what failed counts with the time until then."""

    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def p50(self) -> float:
        return self.percentile(0.5)

    @property
    def p99(self) -> float:
        return self.percentile(0.99)

    @property
    def worst(self) -> float:
        return self.percentile(1)

    def percentile(self, share: float) -> float:
        """The smallest time within which this share was done."""
        return sorted(self.seconds)[max(0, math.ceil(share * len(self.seconds)) - 1)] if self.seconds else math.nan


@dataclass(frozen=True, slots=True)
class Taken:
    """What the agent and its children took."""

    cpu: float
    """Percent of a core."""
    rss: float
    """MiB, at most."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of time."""

    health: Samples
    certified: Samples
    """Clients with a certificate, each on a connection of its own."""
    beside: Samples
    """The same from the address of some of the attackers."""
    kept: Samples
    """A client with a certificate that keeps its connection."""
    kept_opened: int
    """How often that one had to connect."""
    pods: Samples
    taken: Taken
    lag: Samples
    """How late the one who measures was itself."""


class Meters:
    """Measures one node."""

    def __init__(self, *, node: NodeUnderTest, certificate: Path, key: Path) -> None:
        self._node = node
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE  # the agent has signed its certificate itself
        self._context.load_cert_chain(certificate, key)

    async def measure(self, name: str, *, seconds: float) -> Phase:
        """Everything at once; afterwards the pods of this phase are gone."""
        until = time.perf_counter() + seconds
        opened: list[None] = []
        lag = Samples()
        health_url = f"http://127.0.0.1:{self._node.ports.healthz}/healthz"
        pods_url = f"https://127.0.0.1:{self._node.ports.api}/pods"
        async with (
            _session(aiohttp.TCPConnector(force_close=True, limit=0), []) as plain,
            _session(self._connector(), []) as certified,
            _session(self._connector(local_addr=(hostile_address(0), 0)), []) as beside,
            _session(aiohttp.TCPConnector(limit=1, ssl=self._context, keepalive_timeout=60), opened) as kept,
            asyncio.TaskGroup() as group,
        ):
            tasks = [
                group.create_task(ask_steadily(lambda: _get(plain, health_url), HEALTH_EVERY, until, lag)),
                group.create_task(ask_steadily(lambda: _get(certified, pods_url), PODS_EVERY, until, lag)),
                group.create_task(ask_steadily(lambda: _get(beside, pods_url), PODS_EVERY, until, lag)),
                group.create_task(ask_steadily(lambda: _get(kept, pods_url), PODS_EVERY, until, lag)),
                group.create_task(self._start_pods(name, until)),
            ]
            taken = group.create_task(_look_at(self._node.process, until))
        health, with_certificate, from_beside, on_kept, pods = (task.result() for task in tasks)
        return Phase(health, with_certificate, from_beside, on_kept, len(opened), pods, taken.result(), lag)

    def _connector(self, *, local_addr: tuple[str, int] | None = None) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(force_close=True, limit=0, ssl=self._context, local_addr=local_addr)

    async def _start_pods(self, name: str, until: float) -> Samples:
        """From the request of a client to the moment a watching client has the status."""
        samples = Samples()
        number = 0
        async with asyncio.TaskGroup() as group:
            while time.perf_counter() < until:
                group.create_task(self._start_pod(f"{name}-{number}", samples))
                number += 1
                await asyncio.sleep(START_EVERY)
        return samples

    async def _start_pod(self, name: str, samples: Samples) -> None:
        (began,) = await self._node.create([make_manifest(name)])
        try:
            found = (await self._node.pods.until([name], is_running, patience=POD_PATIENCE))[name]
        except TimeoutError:
            found = time.time()
        samples.seconds.append(found - began)
        is_late = found - began > START_WITHIN
        await asyncio.sleep(POD_LIFE)
        await self._node.api.send("DELETE", f"{PODS}/{name}")
        try:
            await self._node.pods.until([name], is_gone, patience=POD_PATIENCE)
        except TimeoutError:
            samples.failures.append(f"not gone {POD_PATIENCE:g} s after its deletion")
        else:
            samples.failures += [f"not Running within {START_WITHIN:g} s"] if is_late else []


async def ask_steadily(ask: Callable[[], Awaitable[None]], every: float, until: float, lag: Samples) -> Samples:
    """Ask so often until then, and wait for all answers."""
    samples = Samples()
    async with asyncio.TaskGroup() as group:
        due = time.perf_counter()
        while due < until:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            lag.seconds.append(time.perf_counter() - due)
            group.create_task(_ask(ask, samples))
            due += every
    return samples


async def until_settled(process: AgentProcess, *, seconds: float = 10.0, patience: float = 60.0) -> float:
    """Wait until the memory of the agent has come to rest, or for so long; MiB."""
    looks: list[float] = []
    give_up = time.perf_counter() + patience
    while time.perf_counter() < give_up:
        looks.append(process.whole_rss())
        recent = looks[-int(seconds / LOOK_EVERY) :]
        if len(recent) * LOOK_EVERY >= seconds and max(recent) - min(recent) < 1:
            break
        await asyncio.sleep(LOOK_EVERY)
    return looks[-1]


async def _ask(ask: Callable[[], Awaitable[None]], samples: Samples) -> None:
    began = time.perf_counter()
    try:
        async with asyncio.timeout(PATIENCE):
            await ask()
    except TimeoutError:
        samples.failures.append(f"no answer within {PATIENCE:g} s")
    except (aiohttp.ClientError, OSError) as error:
        samples.failures.append(f"{type(error).__name__}: {error}"[:200])
    samples.seconds.append(time.perf_counter() - began)


async def _get(session: aiohttp.ClientSession, url: str) -> None:
    async with session.get(url) as answer:
        answer.raise_for_status()
        await answer.read()


@asynccontextmanager
async def _session(connector: aiohttp.TCPConnector, opened: list[None]) -> AsyncIterator[aiohttp.ClientSession]:
    """A client that notes each connection which it opens."""
    tracing = aiohttp.TraceConfig()

    async def note(*_: object) -> None:
        opened.append(None)

    tracing.on_connection_create_end.append(note)
    async with aiohttp.ClientSession(
        connector=connector, timeout=aiohttp.ClientTimeout(), trace_configs=[tracing]
    ) as session:
        yield session


async def _look_at(process: AgentProcess, until: float) -> Taken:
    began, cpu, rss = time.perf_counter(), process.whole_cpu_seconds(), process.whole_rss()
    while time.perf_counter() < until:
        process.check()
        rss = max(rss, process.whole_rss())
        await asyncio.sleep(LOOK_EVERY)
    return Taken(cpu=100 * (process.whole_cpu_seconds() - cpu) / (time.perf_counter() - began), rss=rss)
