"""What a story remembers of its containers, and of pods that go and come back."""

from klet.model.pods import PodUID
from klet.runtime import labels
from klet.simulation.chronicle import Chronicle
from klet.simulation.commands import Commands
from klet.simulation.pods import FILE
from klet.testing.builders import IMAGE, make_pod
from klet.testing.clock import START, ManualClock
from klet.testing.fake_runtime import FakeImage, FakeRuntime
from klet.wire import cri_v1_pb2 as pb

UID = PodUID("uid-1")
POD = make_pod("main", uid=UID)


class Reported:
    """A chronicle, and the runtime it watches."""

    def __init__(self) -> None:
        self.runtime = FakeRuntime(start=START, images=(FakeImage(IMAGE),))
        self.chronicle = Chronicle(runtime=self.runtime, commands=Commands({}), clock=ManualClock(), start=START)
        self.chronicle.want(POD, FILE)
        metadata = pb.PodSandboxMetadata(name="pod", namespace="default", uid=UID)
        self.config = pb.PodSandboxConfig(metadata=metadata)
        self.sandbox = self._call("RunPodSandbox", pb.RunPodSandboxRequest(config=self.config)).pod_sandbox_id

    def make(self, attempt: int = 0) -> str:
        config = pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name="main", attempt=attempt),
            image=pb.ImageSpec(image=IMAGE),
            labels={labels.POD_UID: UID},
            annotations={labels.RESTART_COUNT: str(attempt)},
        )
        request = pb.CreateContainerRequest(pod_sandbox_id=self.sandbox, config=config, sandbox_config=self.config)
        made: str = self._call("CreateContainer", request).container_id
        self.chronicle.look()
        return made

    def remove(self, container: str) -> None:
        self._call("RemoveContainer", pb.RemoveContainerRequest(container_id=container))

    def come_back(self, *, is_seen: bool) -> None:
        self.chronicle.unwant(UID)
        departure = self.chronicle.histories[UID].removal
        assert departure is not None
        departure.is_seen = is_seen
        self.chronicle.want(POD, FILE)

    def newest(self) -> str | None:
        newest = self.chronicle.histories[UID].newest("main")
        return newest.container.id if newest is not None else None

    def _call(self, rpc: str, request):
        return self.runtime.call(rpc, request, now=START).result()


def test_the_newest_instance_counts_even_when_it_has_been_removed():
    reported = Reported()
    reported.make(0)
    newest = reported.make(1)
    reported.remove(newest)
    assert reported.newest() == newest


def test_of_a_previous_pod_only_what_has_not_been_removed_counts():
    reported = Reported()
    old, newer = reported.make(0), reported.make(1)
    reported.come_back(is_seen=True)
    assert reported.newest() == newer
    reported.remove(newer)
    assert reported.newest() == old
    reported.remove(old)
    assert reported.newest() is None


def test_a_pod_that_comes_back_before_any_agent_saw_it_was_never_removed():
    reported = Reported()
    only = reported.make()
    before = reported.chronicle.histories[UID]
    reported.come_back(is_seen=False)
    reported.remove(only)
    assert reported.chronicle.histories[UID] is before
    assert reported.newest() == only
