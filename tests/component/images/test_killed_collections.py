"""An agent that is killed at any side effect of a collection: the records of pulled images and the images agree."""

import asyncio
from datetime import timedelta

import pytest

from klet.cri.client import CriClient
from klet.host.errors import FileError
from klet.images.pulled.files import PullDirectory
from klet.images.pulled.format import file_name
from klet.images.pulled.store import PullRecordStore
from klet.images.pulled.verification import Check
from klet.images.sources import ImagePullSecret
from klet.simulation.host_faults import HostFaults
from klet.simulation.killable import KillableTransport, KillSwitch
from klet.testing.fake_runtime import FakeImage
from klet.testing.image_manager import build_pulled_images
from klet.testing.in_process import REQUEST_TIMEOUT
from klet.testing.pull_files import MemoryPullFiles

MIB = 1 << 20
IMAGES = tuple(
    FakeImage(name=f"registry.test/i{number}:1", size=50 * MIB, id=f"sha256:{number:064}") for number in range(5)
)
OWNER = ImagePullSecret("uid-1", "default", "owner", "hash-1")


class Unobserved:
    """Sees every call and does nothing."""

    def before(self, rpc, request):
        pass

    def after(self, rpc, request):
        pass


class Machine:
    """What outlives the agents: the runtime, and the disk with the records of pulled images."""

    def __init__(self, bench) -> None:
        self.bench = bench
        self.files = MemoryPullFiles()
        self._client = bench.client

    def start_agent(self, switch: KillSwitch | None = None) -> None:
        """Begin a new run of the agent, which a switch may end."""
        client, files = self._client, self.files
        if switch is not None:
            transport = KillableTransport(inner=client.images, kill_switch=switch, observer=Unobserved())
            client = CriClient(runtime=transport, images=transport, timeout=REQUEST_TIMEOUT)
            files = HostFaults(clock=self.bench.clock).wrap(files, "pull records", gate=switch, error=FileError)
        self.bench.client = client
        store = PullRecordStore(files=files, most_cached=100)
        self.bench.records = build_pulled_images(store, client, clock=self.bench.clock)
        self.bench.start_agent()

    async def record_pulls(self) -> None:
        """Have all images be of one tenant."""
        await self.bench.records.prepare()
        for image in IMAGES:
            async with self.bench.records.pulling(image.name, before="") as pull:
                await pull.succeeded(image.image_id, OWNER)

    def images(self) -> set[str]:
        return {each.image.image_id for each in self.bench.runtime.stored_images()}

    def recorded(self) -> set[str]:
        names = {file_name(image.image_id): image.image_id for image in IMAGES}
        return {names[name] for place, name in self.files.content if place is PullDirectory.PULLED}

    async def open_to_strangers(self) -> list[str]:
        """Return the images that a pod without credentials may use."""

        async def nothing():
            return ()

        found = []
        for image in IMAGES:
            if image.image_id in self.images():
                check = await self.bench.records.check(image.name, image.image_id, nothing)
                found += [] if check is Check.MUST_AUTHENTICATE else [image.name]
        return found


async def collect_until_killed(machine, *, calls, after_effect) -> bool:
    """Let a collection be the last of an agent, which is killed at that call; return False if it got through."""
    switch = KillSwitch()
    machine.start_agent(switch)
    await machine.bench.records.prepare()
    await machine.bench.grow_old()
    switch.kill_at_call(calls=calls, after_effect=after_effect)
    async with asyncio.TaskGroup() as group:
        collection = group.create_task(machine.bench.gc.collect())
        death = group.create_task(switch.killed.wait())
        await asyncio.wait((collection, death), return_when=asyncio.FIRST_COMPLETED)
        was_killed = not collection.done()
        collection.cancel()
        death.cancel()
    return was_killed


@pytest.mark.parametrize("after_effect", [False, True])
def test_records_and_images_agree_after_a_kill_at_any_effect_of_a_collection(on_image_bench, after_effect):
    killed = []

    def life(calls: int) -> None:
        async def test(bench) -> None:
            bench.disk.other = 700 * MIB  # 95 %: three images go
            machine = Machine(bench)
            machine.start_agent()
            await machine.record_pulls()
            await bench.clock.sleep(timedelta(minutes=1))
            killed.append(await collect_until_killed(machine, calls=calls, after_effect=after_effect))
            assert machine.images() <= machine.recorded(), "an image without its record would be anybody's"
            machine.start_agent()
            await machine.bench.records.run()
            assert await machine.open_to_strangers() == []
            await bench.grow_old()
            await bench.gc.collect()
            assert machine.recorded() == machine.images()
            assert len(machine.images()) == 2
            assert await machine.open_to_strangers() == []

        on_image_bench(test, *IMAGES)

    while not killed or killed[-1]:
        life(len(killed) + 1)
    # a list of images, one of containers, the status, three removals, five records read, three of them removed
    assert len(killed) > 14
