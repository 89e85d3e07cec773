"""Pods with users of their own under the wired agent: the ids are theirs as long as they live, and no longer."""

from datetime import timedelta

from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.model.pods import PodUID
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.testing.builders import IMAGE, make_pod
from klet.testing.fake_runtime import FakeImage, FakeRuntime
from klet.testing.fake_runtime.world import Features
from klet.testing.loop import EPOCH, run_virtual

UID = PodUID("uid-1")
POD = make_pod("main", uid="uid-1", source="file")
POD = replace(POD, spec=replace(POD.spec, host_users=False))


def machine() -> SimulatedNode:
    runtime = FakeRuntime(start=EPOCH, images=(FakeImage(name=IMAGE),), features=Features(user_namespaces=True))
    return SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime)


async def pause(seconds: float) -> None:
    await LoopClock(epoch=EPOCH).sleep(timedelta(seconds=seconds))


def first_ids(node: SimulatedNode) -> set[int]:
    """Where the ids of all sandboxes and containers begin on the host."""
    options = [
        each.config.linux.security_context.namespace_options.userns_options
        for each in (*node.runtime.sandboxes(), *node.runtime.containers())
    ]
    return {mapping.host_id for option in options for mapping in option.uids}


def test_ids_live_as_long_as_the_pod():
    node = machine()

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            wanted.add(POD)
            await pause(5)
            assert running.agent.statuses.get(UID).phase == "Running"
            assert set(node.files.mappings.written) == {UID}
            assert len(first_ids(node)) == 1
            wanted.remove(UID)
            await pause(60)
            assert not node.files.mappings.written

    run_virtual(story())


def test_the_next_agent_keeps_them():
    node = machine()

    async def life(seed: int):
        wanted = DrivenPodSource()
        wanted.add(POD)
        async with node.run_agent(wanted, seed=seed):
            await pause(5)
            for container in node.runtime.containers():
                if container.is_running:
                    node.runtime.end_container(container.id, exit_code=1)
            await pause(20)

    async def story():
        await life(1)
        before = first_ids(node)
        await life(2)
        assert first_ids(node) == before
        assert len(before) == 1

    run_virtual(story())


def test_an_orphan_gives_its_ids_back_too():
    node = machine()

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted):
            wanted.add(POD)
            await pause(5)
        async with node.run_agent(DrivenPodSource()):
            await pause(60)
        assert not node.files.mappings.written
        assert not node.runtime.sandboxes()

    run_virtual(story())
