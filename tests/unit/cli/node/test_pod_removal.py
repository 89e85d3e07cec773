import pytest

from klet.cli.node.pod_removal import grace_of, longest_grace, remove_pods
from klet.cri.errors import Code, error_for
from klet.model.cri_labels import TERMINATION_GRACE_PERIOD
from klet.testing.clock import ManualClock
from klet.wire import cri_v1_pb2 as pb


class Runtime:
    """Sandboxes that the agent stops after some looks, or that wait to be stopped."""

    def __init__(self, *sandboxes, containers=(), refuses=()):
        self.sandboxes = {sandbox.id: sandbox for sandbox in sandboxes}
        self.containers = list(containers)
        self.refuses = refuses
        self.stopped = []

    async def list_pod_sandbox(self, _request):
        return pb.ListPodSandboxResponse(items=self.sandboxes.values())

    async def list_containers(self, _request):
        return pb.ListContainersResponse(containers=self.containers)

    async def stop_container(self, request):
        self.stopped.append((request.container_id, request.timeout))
        return pb.StopContainerResponse()

    async def stop_pod_sandbox(self, request):
        if request.pod_sandbox_id in self.refuses:
            raise error_for(Code.UNKNOWN, "no")
        return pb.StopPodSandboxResponse()

    async def remove_pod_sandbox(self, request):
        del self.sandboxes[request.pod_sandbox_id]
        return pb.RemovePodSandboxResponse()


class Silent:
    def waiting(self, text):
        pass


def sandbox(name, state=pb.SANDBOX_READY):
    return pb.PodSandbox(id=name, state=state, metadata=pb.PodSandboxMetadata(name=name, uid=f"uid-{name}"))


def container(name, pod, grace=None, state=pb.CONTAINER_RUNNING):
    annotations = {} if grace is None else {TERMINATION_GRACE_PERIOD: grace}
    return pb.Container(id=name, pod_sandbox_id=pod, state=state, annotations=annotations)


async def remove(runtime, *, agent_lives=lambda: False, clock=None):
    stops = []

    async def stop_agent():
        stops.append("agent")

    removed = await remove_pods(
        runtime, agent_lives=agent_lives, stop_agent=stop_agent, progress=Silent(), clock=clock or ManualClock()
    )
    assert stops == ["agent"]
    return [one.id for one in removed]


async def test_without_an_agent_containers_are_stopped_with_their_grace_and_sandboxes_removed():
    runtime = Runtime(
        sandbox("a"),
        sandbox("b", pb.SANDBOX_NOTREADY),
        containers=[container("c", "a", "7"), container("d", "a", state=pb.CONTAINER_EXITED)],
    )
    assert set(await remove(runtime)) == {"a", "b"}
    assert runtime.stopped == [("c", 7)]
    assert runtime.sandboxes == {}


async def test_what_the_runtime_refuses_does_not_stop_the_rest():
    runtime = Runtime(sandbox("a"), sandbox("b"), refuses=("a",))
    await remove(runtime)
    assert list(runtime.sandboxes) == ["a"]


async def test_the_agent_is_given_its_time():
    runtime = Runtime(sandbox("a"), containers=[container("c", "a", "3")])
    clock = ManualClock()

    class Ticking:
        def monotonic(self):
            return clock.monotonic()

        async def sleep(self, duration):
            clock.advance(duration)

    await remove(runtime, agent_lives=lambda: True, clock=Ticking())
    # Three seconds of grace and ten for the agent itself; only then the runtime is asked directly.
    assert clock.monotonic() == pytest.approx(13, abs=0.2)
    assert runtime.stopped == [("c", 3)]


@pytest.mark.parametrize(
    ("grace", "expected"),
    [
        pytest.param("5", 5, id="as written"),
        pytest.param(None, 30, id="the default"),
        pytest.param("x", 30, id="nonsense"),
        pytest.param("100000", 300, id="nobody waits for ever"),
        pytest.param("0", 0, id="none"),
    ],
)
def test_grace_of(grace, expected):
    assert grace_of(container("c", "a", grace)) == expected
    assert longest_grace([container("c", "a", grace), container("d", "a", "0")]) == expected
