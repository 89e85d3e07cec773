"""A container runtime that is not there when the agent starts, goes away and comes back, in virtual time."""

from datetime import timedelta

import pytest

from klet.aio.clock import LoopClock
from klet.cri.errors import Code
from klet.logs.rotation import LogRotationSettings
from klet.model.pods import PodUID
from klet.node.cgroup_driver import CgroupDriverUnknown
from klet.node.first_contact import FirstContact, RuntimeIntroduction
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.simulation.fake_host import MemoryFiles
from klet.testing.builders import IMAGE, make_pod
from klet.testing.fake_runtime import FakeImage, FakeRuntime, Fault
from klet.testing.fake_runtime.faults import ANY, Fail
from klet.testing.fake_runtime.world import Features
from klet.testing.in_process import run_in_process
from klet.testing.loop import EPOCH, run_virtual
from klet.wire import cri_v1_pb2 as cri

UID = PodUID("uid-1")
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
AWAY = Fail(Code.UNAVAILABLE, "connection error: no such file or directory")


def machine(**features):
    files = MemoryFiles()
    known = Features(**features)
    runtime = FakeRuntime(start=EPOCH, images=(FakeImage(name=IMAGE),), sink=files.sink, features=known)
    rotation = LogRotationSettings(max_size=100)
    return SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime, met=None, files=files, log_rotation=rotation)


def phase(running):
    status = running.agent.statuses.get(UID)
    return status.phase if status is not None else ""


async def until(node, condition, *, within):
    give_up = node.clock.now() + within
    while not condition():
        assert node.clock.now() < give_up
        await node.clock.sleep(SECOND / 100)


def test_an_agent_without_a_runtime_waits_for_minutes_and_starts_everything_when_it_comes():
    node = machine(runtime_config=True, cgroup_driver=cri.SYSTEMD)
    away = node.runtime.faults.add(Fault(ANY, AWAY, count=None))

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            wanted.add(make_pod("main", uid=UID, source="file"))
            await node.clock.sleep(7 * MINUTE)
            # It waits, and its health check is fine, as upstream's is before the first answer.
            assert running.agent.loop.health_error() is None
            assert running.agent.runtime.errors()[0] == "container runtime status check may not have completed yet"
            assert phase(running) == ""
            assert node.cgroups.driver == ""
            # Nothing but the first contact and the runtime checks has asked: all others wait for the first answer.
            assert {call.rpc for call in node.runtime.calls} == {"Version", "Status"}
            away.release()
            await until(node, lambda: phase(running) == "Running", within=15 * SECOND)
            assert node.cgroups.driver == "systemd"
            (status,) = running.agent.statuses.get(UID).container_statuses
            assert status.container_id.startswith("containerd://")
            # The log manager is one of the parts that came after it.
            (container,) = node.runtime.containers()
            for _ in range(20):
                node.runtime.write_log(container.id, "line")
            await node.clock.sleep(11 * SECOND)
            assert any(path.startswith(f"{container.log_path}.") for path in node.files.sink.paths())

    run_virtual(story())


def test_a_runtime_that_is_away_for_long_does_not_fill_the_log(caplog):
    node = machine()
    node.runtime.faults.add(Fault(ANY, AWAY, count=None))

    async def story():
        async with node.run_agent(DrivenPodSource()):
            await node.clock.sleep(30 * MINUTE)

    with caplog.at_level("INFO"):
        run_virtual(story())
    said = [record.message for record in caplog.records if record.name.startswith("klet.node")]
    assert sorted(said) == ["Container runtime sanity check failed", "Waiting for the runtime"]


def test_a_runtime_that_goes_away_and_comes_back():
    node = machine()

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            wanted.add(make_pod("main", uid=UID, source="file"))
            await until(node, lambda: phase(running) == "Running", within=15 * SECOND)
            away = node.runtime.faults.add(Fault(ANY, AWAY, count=None))
            node.runtime.disconnect()
            await node.clock.sleep(2 * MINUTE)
            assert running.agent.runtime.errors()[0] == "container runtime is down"
            late = PodUID("late")
            wanted.add(make_pod("main", uid=late, name="late", source="file"))
            await node.clock.sleep(MINUTE)
            assert running.agent.pods.get(late) is None
            away.release()
            await until(node, lambda: running.agent.pods.get(late) is not None, within=15 * SECOND)
            await until(node, lambda: running.agent.statuses.get(late).phase == "Running", within=15 * SECOND)
            assert phase(running) == "Running"

    run_virtual(story())


@pytest.mark.parametrize(
    ("rpc", "word"), [("Version", "runtime"), ("ImageFsInfo", "image")], ids=["no runtime service", "no image service"]
)
def test_what_does_not_speak_the_cri_is_waited_for_too(rpc, word, caplog):
    node = machine()
    fault = node.runtime.faults.add(Fault(rpc, Fail(Code.UNIMPLEMENTED, "unknown service"), count=None))

    async def story():
        with caplog.at_level("INFO", logger="klet.node.first_contact"):
            async with node.run_agent(DrivenPodSource()):
                await node.clock.sleep(2 * MINUTE)
                said = [record for record in caplog.records if record.message == "Waiting for the runtime"]
                assert [record.error.startswith(f"validate CRI v1 {word} API") for record in said] == [True]
                assert "ListPodSandbox" not in {call.rpc for call in node.runtime.calls}
                fault.release()
                await node.clock.sleep(3 * SECOND)
                assert "ListPodSandbox" in {call.rpc for call in node.runtime.calls}

    run_virtual(story())


@pytest.mark.parametrize(
    ("features", "configured", "expected"),
    [
        pytest.param({}, "systemd", "systemd", id="a runtime without the call: the configured one"),
        pytest.param({"runtime_config": True, "cgroup_driver": cri.SYSTEMD}, "cgroupfs", "systemd", id="the runtime's"),
    ],
)
def test_the_cgroup_driver_of_the_introduction(features, configured, expected):
    async def story():
        clock = LoopClock(epoch=EPOCH)
        runtime = FakeRuntime(start=EPOCH, features=Features(**features))
        async with run_in_process(runtime, clock=clock) as client:
            contact = FirstContact(runtime=client, endpoint="x", configured_driver=configured, clock=clock)
            assert (contact.found, contact.runtime_name()) == (None, "containerd")
            assert await contact.ask()
            assert contact.found == RuntimeIntroduction(
                "containerd", "1.6.20~fake", expected, is_losing_support="runtime_config" not in features
            )

    run_virtual(story())


def test_an_unknown_cgroup_driver_ends_the_agent():
    node = machine(runtime_config=True, cgroup_driver=7)

    async def story():
        async with node.run_agent(DrivenPodSource()):
            await node.clock.sleep(MINUTE)

    with pytest.raises(BaseExceptionGroup) as caught:
        run_virtual(story())
    assert caught.group_contains(CgroupDriverUnknown)
