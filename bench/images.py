"""Measures pulls: many pods with an image each, and pods whose image is there while others pull.

The floor pulls the same images with raw CRI calls, all at once, from the same registry into the same containerd: the
images alone, and with a sandbox and a container for each. Run as root on a machine that has nothing else to do:
python -m bench.images [--rounds N] [--images N] [--size MEBIBYTES]
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import uvloop

from bench.floor import Floor
from bench.manifests import SCRIPT
from bench.node import AgentUnderTest, Node, remove_all
from bench.options import conclude, end_in_order, log_line
from bench.rows import Round, Row
from klet.cri.client import CriClient, connect
from klet.testing.containerd import REQUEST_TIMEOUT, run_containerd, why_impossible
from klet.wire import cri_v1_pb2 as cri

T = TypeVar("T")

PARALLEL: Final = {"serializeImagePulls": False, "registryPullQPS": 0}
SERIAL: Final = {"serializeImagePulls": True, "registryPullQPS": 0}
MOST_RATIO: Final = 1.1
PRESENT_RATIO: Final = 1.7
"""As for one pod on a node that pulls nothing."""
PAUSE: Final = 0.3
"""Seconds between two pods whose image is there."""
SANDBOXES_AT_ONCE: Final = 8
"""Of the floor's pods: as many as klet starts at a time on two CPUs. More would be slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """One side of one round."""

    pulls: float
    """Seconds until the last image was there."""
    running: float | None = None
    """Seconds until the last pod ran."""
    present: tuple[float, ...] = ()
    """How long pods took to start meanwhile whose image is there."""


class RawPulls:
    """The floor."""

    def __init__(self, *, client: CriClient, floor: Floor, images: list[str]) -> None:
        self._client = client
        self._floor = floor
        self._images = images
        self._pods = 0

    async def pull(self, *, at_once: int, with_pods: bool) -> Pulled:
        """Pull all images, so many at a time, and start pods meanwhile if asked to."""
        turn = asyncio.Semaphore(at_once)

        async def pull(image: str) -> None:
            async with turn:
                await self._client.pull_image(cri.PullImageRequest(image=cri.ImageSpec(image=image)))

        began = time.perf_counter()
        pulls = asyncio.gather(*map(pull, self._images))
        present = await start_until(pulls, self._start_one) if with_pods else ()
        await pulls
        took = time.perf_counter() - began
        await remove_all(self._client)
        await remove_images(self._client, self._images)
        return Pulled(pulls=took, present=present)

    async def run(self) -> Pulled:
        """Run a pod with each image, which is pulled for it."""
        turn = asyncio.Semaphore(SANDBOXES_AT_ONCE)
        self._pods += 1

        async def start(number: int, image: str) -> None:
            name = f"pulled-{self._pods}-{number}"
            await self._floor.pull_and_start_one(name, SCRIPT, image=image, turn=turn)

        began = time.perf_counter()
        await asyncio.gather(*(start(number, image) for number, image in enumerate(self._images)))
        took = time.perf_counter() - began
        await remove_all(self._client)
        await remove_images(self._client, self._images)
        return Pulled(pulls=took, running=took)

    async def _start_one(self) -> float:
        self._pods += 1
        began = time.perf_counter()
        await self._floor.start_one(f"present-{self._pods}", SCRIPT)
        return time.perf_counter() - began


class PullingPods:
    """The same with klet: a pod for each image."""

    def __init__(self, *, node: Node, client: CriClient, images: list[str]) -> None:
        self._node = node
        self._client = client
        self._images = images
        self._rounds = 0

    async def pull(self, configuration: Mapping[str, object], *, with_pods: bool) -> Pulled:
        self._rounds += 1
        names = [f"pull-{self._rounds}-{number}" for number in range(len(self._images))]
        async with self._node.agent(configuration) as agent, agent.watch() as pulled, agent.watch() as running:
            began = time.time()
            for name, image in zip(names, self._images, strict=True):
                agent.write(name, image=image)
            ends = asyncio.gather(
                pulled.until(names, "Pulled", "Successfully pulled"), running.until(names, "PhaseChanged", "-> Running")
            )
            present = await start_until(ends, lambda: self._start_one(agent)) if with_pods else ()
            at_pulled, at_running = await ends
        await remove_images(self._client, self._images)
        return Pulled(pulls=max(at_pulled.values()) - began, running=max(at_running.values()) - began, present=present)

    async def _start_one(self, agent: AgentUnderTest) -> float:
        self._rounds += 1
        name = f"present-{self._rounds}"
        async with agent.watch() as watch:
            began = time.time()
            agent.write(name)
            found = await watch.until([name], "PhaseChanged", "-> Running")
        return found[name] - began


async def start_until(end: "asyncio.Future[T]", start_one: Callable[[], Awaitable[float]]) -> tuple[float, ...]:
    """Start pods one after the other until something else has ended; return how long each took."""
    times = []
    while not end.done():
        times.append(await start_one())
        await asyncio.sleep(PAUSE)
    return tuple(times)


async def remove_images(client: CriClient, images: list[str]) -> None:
    for image in images:
        await client.remove_image(cri.RemoveImageRequest(image=cri.ImageSpec(image=image)))


async def measure(options: argparse.Namespace) -> list[Row]:
    end_in_order()
    with tempfile.TemporaryDirectory(prefix="klet-bench-") as name:
        directory = Path(name)
        async with (
            run_registry(options.images, options.size) as address,
            run_containerd(directory / "c") as containerd,
            connect(runtime_endpoint=containerd.endpoint, timeout=REQUEST_TIMEOUT) as client,
        ):
            images = [f"{address}/bench/image-{number}:1" for number in range(options.images)]
            raw = RawPulls(client=client, floor=Floor(client=client, containerd=containerd), images=images)
            ours = PullingPods(
                node=Node(directory=directory, containerd=containerd, client=client), client=client, images=images
            )
            return await take_turns(raw, ours, options.images, options.size, rounds=options.rounds)


async def take_turns(raw: RawPulls, ours: PullingPods, count: int, size: int, *, rounds: int) -> list[Row]:
    """The first pull of all only warms the registry and the disk up."""
    await raw.pull(at_once=count, with_pods=False)
    sides: dict[str, list[Pulled]] = {}
    steps: dict[str, Callable[[], Awaitable[Pulled]]] = {
        "floor": lambda: raw.pull(at_once=count, with_pods=False),
        "floor, pods": raw.run,
        "klet": lambda: ours.pull(PARALLEL, with_pods=False),
        "floor, parallel": lambda: raw.pull(at_once=count, with_pods=True),
        "klet, parallel": lambda: ours.pull(PARALLEL, with_pods=True),
        "floor, serial": lambda: raw.pull(at_once=1, with_pods=True),
        "klet, serial": lambda: ours.pull(SERIAL, with_pods=True),
    }
    for _ in range(rounds):
        for name, step in steps.items():
            sides.setdefault(name, []).append(found := await step())
            log_line(f"{name}: {found}")
    what = f"{count} images of {size} MiB"
    alone, with_pods = (median_of(sides[name], lambda each: each.pulls) for name in ("floor", "floor, pods"))
    pulled = median_of(sides["klet"], lambda each: each.pulls)
    running = median_of(sides["klet"], lambda each: each.running or 0.0)
    rows = [
        Row(what=f"{what}: {each}", klet=time, floor=floor, unit="s", most_ratio=ratio)
        for each, time, floor, ratio in (
            (f"all {count} pods run, beside the same pods with raw calls", running, with_pods, MOST_RATIO),
            (f"all {count} pods run, beside the pulls alone", running, alone, MOST_RATIO),
            ("all pulled, beside the pulls alone", pulled, alone, MOST_RATIO),
            ("the floor itself with its pods, beside the pulls alone", with_pods, alone, None),
        )
    ]
    for how in ("parallel", "serial"):
        beside, own = sides[f"floor, {how}"], sides[f"klet, {how}"]
        rows += [
            Row(
                what=f"{how} pulls meanwhile: pod with a present image, {word}",
                klet=read([time for each in own for time in each.present]),
                floor=read([time for each in beside for time in each.present]),
                unit="s",
                most_ratio=PRESENT_RATIO if word == "p50" else None,
            )
            for word, read in (("p50", statistics.median), ("worst", max))
        ]
    return rows


def median_of(sides: list[Pulled], read: Callable[[Pulled], float]) -> float:
    return Round(tuple(map(read, sides))).p50


@asynccontextmanager
async def run_registry(count: int, size: int) -> AsyncIterator[str]:
    """Yield the address of a registry in a process of its own, whose work is no work of ours."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "bench.image_registry", str(count), str(size)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.images", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often the sides take turns")
    parser.add_argument("--images", type=int, default=20, help="how many images, each for a pod")
    parser.add_argument("--size", type=int, default=50, help="MiB of each")
    parser.add_argument("-o", choices=("table", "json"), default="table", dest="output", help="form of the result")
    options = parser.parse_args()
    if why := why_impossible():
        parser.error(why)
    return conclude(uvloop.run(measure(options)), options.output)


if __name__ == "__main__":
    sys.exit(main())
