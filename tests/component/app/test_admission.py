"""A pod that the node does not take in has failed, and the others go on."""

from datetime import timedelta

from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.container import ContainerPort
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.testing.builders import IMAGE, make_container, make_pod
from klet.testing.fake_runtime import FakeImage, FakeRuntime
from klet.testing.loop import EPOCH, run_virtual

A_WHILE = timedelta(seconds=10)


def on_port(uid, name):
    ports = (ContainerPort(container_port=80, host_port=8080),)
    return make_pod(replace(make_container("main"), ports=ports), uid=uid, name=name, source="file")


def new_node():
    runtime = FakeRuntime(start=EPOCH, images=(FakeImage(name=IMAGE),))
    return SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime)


def test_two_pods_cannot_have_one_port_of_the_host():
    node = new_node()
    clock = LoopClock(epoch=EPOCH)

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            wanted.add(on_port("uid-1", "first"))
            await clock.sleep(A_WHILE)
            wanted.add(on_port("uid-2", "second"))
            await clock.sleep(A_WHILE)
            before = {uid: running.agent.statuses.get(uid) for uid in ("uid-1", "uid-2")}
            wanted.remove("uid-2")
            await clock.sleep(A_WHILE)
            return before, running.agent.statuses.all(), [cause.finding for cause in running.journal.all()]

    before, after, findings = run_virtual(story())
    assert before["uid-1"].phase == "Running"
    rejected = before["uid-2"]
    assert (rejected.phase, rejected.reason) == ("Failed", "NodePorts")
    assert rejected.message.startswith("Pod was rejected: Predicate NodePorts failed: ")
    assert rejected.container_statuses == ()
    (recorded,) = [finding for finding in findings if finding.decision == "NodePorts"]
    assert recorded.subject.name == "second"
    assert "held" not in recorded.message  # it is the event's too, which has upstream's words
    assert recorded.measurements["heldBy"] == "default/first"
    assert set(after) == {"uid-1"}


def test_a_pod_that_takes_the_place_of_another_may_have_its_port():
    node = new_node()
    clock = LoopClock(epoch=EPOCH)

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            wanted.add(on_port("uid-1", "pod"))
            await clock.sleep(A_WHILE)
            wanted.remove("uid-1")
            wanted.add(on_port("uid-2", "pod"))
            await clock.sleep(timedelta(minutes=2))
            return running.agent.statuses.get("uid-2")

    assert run_virtual(story()).phase == "Running"


def test_a_new_agent_rejects_no_pod_that_runs():
    node = new_node()
    clock = LoopClock(epoch=EPOCH)
    pods = (on_port("uid-1", "first"), on_port("uid-2", "second"))

    async def story():
        first = DrivenPodSource()
        async with node.run_agent(first):
            first.add(*pods)
            await clock.sleep(A_WHILE)
        second = DrivenPodSource()
        async with node.run_agent(second) as running:
            second.add(*reversed(pods))
            await clock.sleep(A_WHILE)
            return running.agent.statuses.all()

    statuses = run_virtual(story())
    assert statuses["uid-1"].phase == "Running"
    assert statuses["uid-2"].reason == "NodePorts"
