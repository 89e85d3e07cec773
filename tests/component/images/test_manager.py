"""The image manager on the fake runtime: policies, pulls, failures and back-off, in virtual time."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.cri.client import CriClient
from klet.cri.errors import Code
from klet.images.keyring import FittingLogins
from klet.images.manager import ImageManager
from klet.images.metrics import register_images
from klet.images.present_images import SEEN_FOR
from klet.images.pull_backoff import PullBackoff
from klet.journal.memory import MemoryJournal
from klet.journal.records import CauseQuery
from klet.metrics import MetricRegistry
from klet.model.causes import Finding
from klet.model.images import ImageUser, MissingImage, PresentImage
from klet.model.pods import PodUID
from klet.model.reasons import EventType, Reason
from klet.model.stopping_pods import PodStopping, StoppingPods
from klet.testing.builders import make_container, make_pod
from klet.testing.fake_runtime import FakeImage, FakeRuntime, Fault, RpcFailure, Script, registry_of
from klet.testing.fake_runtime.faults import Fail
from klet.testing.image_manager import build_image_manager
from klet.testing.in_process import run_in_process
from klet.testing.loop import EPOCH, run_virtual
from klet.wire import cri_v1_pb2 as cri

HERE = FakeImage("here:latest", user="1000")
NAMED = FakeImage("named:1", user="app")
REMOTE = FakeImage("remote:1", size=123_456, pull_time=timedelta(seconds=2))
PULLED = 'Container image "{}" already present on machine'

ANNOTATIONS = {"io.containerd.cri.runtime-handler": "kata"}
SANDBOX = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(uid="u-1"), annotations=ANNOTATIONS)


class NoLogins:
    """Nobody logs in anywhere; notes what was announced when it was asked."""

    def __init__(self, announced: Sequence[int]) -> None:
        self._announced = announced
        self.asked_after: list[int] = []

    async def find(self, _pod, _image, _repository):
        self.asked_after.append(len(self._announced))
        return FittingLogins()


class Bench:
    """An image manager over a fake runtime."""

    def __init__(self, runtime: FakeRuntime, client: CriClient, clock: LoopClock) -> None:
        self.runtime = runtime
        self.backoff = PullBackoff()
        self.stopping_pods = StoppingPods()
        self.clock = clock
        self.recorded: list[int] = []
        """How many pulls had been asked for whenever one was announced."""
        self.logins = NoLogins(self.recorded)
        self._client = client
        self._journal = MemoryJournal(clock=clock)
        self._registry = MetricRegistry()
        self._metrics = register_images(self._registry)
        self._manager = self._build_manager()

    async def ensure(self, image: str, policy: str = "IfNotPresent", *, uid: str = "u-1", handler: str = ""):
        container = replace(make_container("c", image=image), image_pull_policy=policy)
        pod = make_pod(container, uid=uid)
        return await self._manager.ensure(
            replace(pod, metadata=replace(pod.metadata, annotations=ANNOTATIONS)),
            container,
            sandbox=SANDBOX,
            handler=handler,
            before_pull=lambda: self.recorded.append(self.pulls()),
            parent=None,
        )

    def restart(self) -> None:
        """The next life of the agent knows what this one left."""
        self.backoff = PullBackoff(restored=self.backoff.all())
        self._manager = self._build_manager()

    async def events(self) -> list[tuple[str, str]]:
        return [(finding.decision, finding.message) for finding in await self.findings()]

    async def findings(self) -> list[Finding]:
        return [found.finding for found in await self._journal.find(CauseQuery())]

    def pulls(self) -> int:
        return sum(call.rpc == "PullImage" for call in self.runtime.calls)

    def requests(self) -> list[tuple[str, str, str]]:
        """Return the labels under which a request was counted: policy, present, pull required."""
        name = "kubelet_image_manager_ensure_image_requests_total"
        lines = [line for line in self._registry.write().decode().splitlines() if line.startswith(name)]
        labels = [dict(re.findall(r'(\w+)="(\w+)"', line)) for line in lines if not line.endswith(" 0")]
        return [(each["pull_policy"], each["present_locally"], each["pull_required"]) for each in labels]

    def _build_manager(self) -> ImageManager:
        return build_image_manager(
            self._client,
            self.logins,
            backoff=self.backoff,
            stopping_pods=self.stopping_pods,
            recorder=self._journal,
            clock=self.clock,
            metrics=self._metrics,
        )


def on_bench(test: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = LoopClock(epoch=EPOCH)
        runtime = FakeRuntime(start=EPOCH, script=Script(registry=registry_of(REMOTE)), images=(HERE, NAMED))
        async with run_in_process(runtime, clock=clock) as client:
            await test(Bench(runtime, client, clock))

    run_virtual(main())


@pytest.mark.parametrize("policy", ["IfNotPresent", "Never"])
def test_an_image_that_is_there_is_used(policy):
    async def test(bench: Bench) -> None:
        assert await bench.ensure("here", policy) == PresentImage(HERE.image_id, ImageUser(1000))
        assert bench.pulls() == 0
        assert await bench.events() == [("Pulled", PULLED.format("here"))]

    on_bench(test)


def test_the_runtime_is_told_for_which_pod_it_pulls():
    async def test(bench: Bench) -> None:
        await bench.ensure("remote:1")
        (asked,) = [call.request for call in bench.runtime.calls if call.rpc == "PullImage"]
        assert asked == cri.PullImageRequest(
            image=cri.ImageSpec(image="remote:1", annotations=ANNOTATIONS), sandbox_config=SANDBOX
        )
        looks = [call.request.image for call in bench.runtime.calls if call.rpc == "ImageStatus"]
        assert looks == [asked.image] * 2

    on_bench(test)


def test_a_runtime_may_keep_an_image_for_each_of_its_handlers():
    async def test(bench: Bench) -> None:
        await bench.ensure("here", handler="kata")
        await bench.ensure("here", handler="kata")
        await bench.ensure("here")
        looks = [call.request.image.runtime_handler for call in bench.runtime.calls if call.rpc == "ImageStatus"]
        assert looks == ["kata", ""]  # what was seen for one handler does not hold for another

    on_bench(test)


def test_a_record_says_whether_an_image_was_pulled_or_there_before():
    async def test(bench: Bench) -> None:
        await bench.ensure("here")
        await bench.ensure("remote:1")
        pulled = [finding.measurements for finding in await bench.findings() if finding.decision == Reason.PULLED]
        assert pulled == [{"alreadyPresent": True}, {}]

    on_bench(test)


def test_waiting_for_an_image_is_no_warning_and_a_failed_pull_is_one():
    async def test(bench: Bench) -> None:
        bench.runtime.faults.add(Fault("PullImage", Fail(Code.UNKNOWN, "no such host")))
        await bench.ensure("remote:1")
        await bench.ensure("remote:1")
        types = [(finding.decision, finding.decision.event_type) for finding in await bench.findings()]
        assert types == [
            ("Pulling", EventType.NORMAL),
            ("Failed", EventType.WARNING),
            ("BackOff", EventType.NORMAL),
        ]

    on_bench(test)


def test_pods_that_start_together_ask_once_for_their_image():
    async def test(bench: Bench) -> None:
        for wait, asked in ((timedelta(0), 1), (SEEN_FOR / 2, 1), (SEEN_FOR / 2, 2)):
            await bench.clock.sleep(wait)
            assert await bench.ensure("here") == PresentImage(HERE.image_id, ImageUser(1000))
            assert sum(call.rpc == "ImageStatus" for call in bench.runtime.calls) == asked

    on_bench(test)


def test_an_image_that_was_missing_is_asked_for_again_at_once():
    async def test(bench: Bench) -> None:
        for _ in range(2):
            assert isinstance(await bench.ensure("nowhere:1", "Never"), MissingImage)
        assert sum(call.rpc == "ImageStatus" for call in bench.runtime.calls) == 2

    on_bench(test)


def test_the_user_of_an_image_may_be_a_name():
    async def test(bench: Bench) -> None:
        assert await bench.ensure("named:1") == PresentImage(NAMED.image_id, ImageUser(name="app"))

    on_bench(test)


@pytest.mark.parametrize("policy", ["IfNotPresent", "Always"])
def test_an_image_that_is_missing_is_pulled(policy):
    async def test(bench: Bench) -> None:
        assert await bench.ensure("remote:1", policy) == PresentImage(REMOTE.image_id, ImageUser())
        assert await bench.events() == [
            ("Pulling", 'Pulling image "remote:1"'),
            ("Pulled", 'Successfully pulled image "remote:1" in 2s (2s including waiting). Image size: 123456 bytes.'),
        ]

    on_bench(test)


def test_always_pulls_again():
    async def test(bench: Bench) -> None:
        await bench.ensure("remote:1", "Always")
        await bench.ensure("remote:1", "Always")
        await bench.ensure("remote:1", "IfNotPresent")
        assert bench.pulls() == 2

    on_bench(test)


def test_never_does_not_pull():
    async def test(bench: Bench) -> None:
        text = 'Container image "remote:1" is not present with pull policy of Never'
        assert await bench.ensure("remote:1", "Never") == MissingImage("ErrImageNeverPull", text)
        assert await bench.events() == [("ErrImageNeverPull", text)]
        assert bench.pulls() == 0

    on_bench(test)


def test_a_bad_reference():
    async def test(bench: Bench) -> None:
        found = await bench.ensure("a b")
        text = 'Failed to apply default image tag "a b": couldn\'t parse image name "a b": invalid reference format'
        assert found == MissingImage("InvalidImageName", text)
        assert await bench.events() == [("InspectFailed", text)]

    on_bench(test)


def test_an_image_that_cannot_be_inspected():
    async def test(bench: Bench) -> None:
        bench.runtime.faults.add(Fault("ImageStatus", Fail(Code.UNKNOWN, "disk gone")))
        found = await bench.ensure("here")
        text = 'Failed to inspect image "": rpc error: code = Unknown desc = disk gone'
        assert found == MissingImage("ImageInspectError", text)
        assert await bench.events() == [("InspectFailed", text)]

    on_bench(test)


def test_an_image_that_is_pulled_in_any_case_is_not_inspected_before():
    """Upstream does not look first with the policy Always, so that a failure of it does not hold the pull back."""

    async def test(bench: Bench) -> None:
        bench.runtime.faults.add(Fault("ImageStatus", Fail(Code.UNKNOWN, "disk gone")))
        assert isinstance(await bench.ensure("remote:1", "Always"), PresentImage)
        assert [decision for decision, _ in await bench.events()] == ["Pulling", "Pulled"]

    on_bench(test)


@pytest.mark.parametrize(
    ("image", "policy", "fault", "labels"),
    [
        pytest.param("remote:1", "IfNotPresent", None, ("false", "true"), id="missing, and pulled"),
        pytest.param("here", "IfNotPresent", None, ("true", "false"), id="present"),
        pytest.param("here", "Always", None, ("unknown", "true"), id="present, and pulled in any case"),
        pytest.param("remote:1", "Never", None, ("false", "unknown"), id="missing, and never pulled"),
        pytest.param("here", "Never", None, ("true", "false"), id="present, and never pulled"),
        pytest.param("here", "IfNotPresent", "ImageStatus", ("unknown", "unknown"), id="it cannot be inspected"),
        pytest.param("remote:1", "IfNotPresent", "PullImage", ("false", "true"), id="it cannot be pulled"),
        pytest.param("http://url", "Always", None, ("unknown", "unknown"), id="no name of an image"),
    ],
)
def test_how_requests_are_counted(image, policy, fault, labels):
    """Upstream's table of `kubelet_image_manager_ensure_image_requests_total`."""

    async def test(bench: Bench) -> None:
        if fault is not None:
            bench.runtime.faults.add(Fault(fault, Fail(Code.UNKNOWN, "broken")))
        await bench.ensure(image, policy)
        assert bench.requests() == [(policy.lower(), *labels)]

    on_bench(test)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        pytest.param(Fail(Code.UNKNOWN, "no such host"), MissingImage("ErrImagePull", "no such host"), id="unknown"),
        pytest.param(
            Fail(Code.UNAVAILABLE, "gone"),
            MissingImage("ErrImagePull", "rpc error: code = Unavailable desc = gone"),
            id="another code is shown",
        ),
        pytest.param(
            Fail(Code.UNKNOWN, "RegistryUnavailable: 503"),
            MissingImage(
                "RegistryUnavailable", "image pull failed for remote:1 because the registry is unavailable: 503"
            ),
            id="the registry is away",
        ),
        pytest.param(
            Fail(Code.UNKNOWN, "SignatureValidationFailed: who"),
            MissingImage(
                "SignatureValidationFailed",
                "image pull failed for remote:1 because the signature validation failed: who",
            ),
            id="the signature is wrong",
        ),
    ],
)
def test_a_failed_pull(failure, expected):
    async def test(bench: Bench) -> None:
        bench.runtime.faults.add(Fault("PullImage", failure))
        assert await bench.ensure("remote:1") == expected

    on_bench(test)


def test_pulls_back_off_and_say_why():
    async def test(bench: Bench) -> None:
        bench.runtime.faults.add(Fault("PullImage", Fail(Code.UNKNOWN, "no such host"), count=2))
        results: list[tuple[float, str]] = []
        while not results or results[-1][1] != "here":
            found = await bench.ensure("remote:1")
            results.append((bench.clock.monotonic(), "here" if isinstance(found, PresentImage) else found.reason))
            await bench.clock.sleep(timedelta(seconds=5))
        reasons = [reason for _, reason in results]
        assert reasons == [
            "ErrImagePull",
            "ImagePullBackOff",
            "ErrImagePull",
            "ImagePullBackOff",
            "ImagePullBackOff",
            "ImagePullBackOff",
            "here",
        ]
        assert bench.pulls() == 3
        events = await bench.events()
        assert events[:3] == [
            ("Pulling", 'Pulling image "remote:1"'),
            ("Failed", 'Failed to pull image "remote:1": no such host'),
            ("BackOff", 'Back-off pulling image "remote:1"'),
        ]

    on_bench(test)


def test_the_waiting_state_of_a_back_off_names_the_last_failure():
    async def test(bench: Bench) -> None:
        bench.runtime.faults.add(Fault("PullImage", Fail(Code.UNKNOWN, "no such host")))
        failed = await bench.ensure("remote:1")
        assert (failed.reason, failed.retry_at) == ("ErrImagePull", EPOCH + timedelta(seconds=1))
        text = 'Back-off pulling image "remote:1": ErrImagePull: no such host'
        found = await bench.ensure("remote:1")
        assert found == MissingImage("ImagePullBackOff", text)
        assert found.retry_at == EPOCH + timedelta(seconds=10)

    on_bench(test)


def test_a_pull_is_announced_and_nothing_else_is():
    async def test(bench: Bench) -> None:
        await bench.ensure("here")
        await bench.ensure("remote:1", "Never")
        assert bench.recorded == []
        bench.runtime.faults.add(Fault("PullImage", Fail(Code.UNKNOWN, "no such host")))
        await bench.ensure("remote:1")
        await bench.ensure("remote:1")
        assert bench.recorded == [0]

    on_bench(test)


def test_a_pull_is_announced_before_its_logins_are_looked_up():
    """A credential provider may take a minute, and the pod must not keep others from starting for so long."""

    async def test(bench: Bench) -> None:
        await bench.ensure("remote:1")
        assert (bench.recorded, bench.logins.asked_after) == ([0], [1])

    on_bench(test)


def test_back_offs_go_on_in_the_next_life():
    async def test(bench: Bench) -> None:
        bench.runtime.faults.add(Fault("PullImage", Fail(Code.UNKNOWN, "no such host"), count=2))
        await bench.ensure("remote:1")
        await bench.clock.sleep(timedelta(seconds=10))
        await bench.ensure("remote:1")
        before = await bench.ensure("remote:1")
        await bench.clock.sleep(timedelta(seconds=19))
        bench.restart()
        assert await bench.ensure("remote:1") == before
        assert bench.pulls() == 2
        await bench.clock.sleep(timedelta(seconds=1))
        assert isinstance(await bench.ensure("remote:1"), PresentImage)

    on_bench(test)


def test_a_pull_that_succeeded_is_not_held_back_in_the_next_life_and_its_delay_goes_on():
    async def test(bench: Bench) -> None:
        bench.runtime.faults.add(Fault("PullImage", Fail(Code.UNKNOWN, "no such host")))
        await bench.ensure("remote:1", "Always")
        await bench.clock.sleep(timedelta(seconds=10))
        await bench.ensure("remote:1", "Always")
        bench.restart()
        assert isinstance(await bench.ensure("remote:1", "Always"), PresentImage)
        bench.runtime.faults.add(Fault("PullImage", Fail(Code.UNKNOWN, "no such host")))
        await bench.ensure("remote:1", "Always")
        assert [known.delay for known in bench.backoff.all()] == [timedelta(seconds=20)]

    on_bench(test)


def test_pods_and_images_back_off_apart_and_a_forgotten_pod_starts_over():
    async def test(bench: Bench) -> None:
        bench.runtime.faults.add(Fault("PullImage", Fail(Code.UNKNOWN, "no such host"), count=3))
        first = await bench.ensure("remote:1", uid="u-1")
        second = await bench.ensure("remote:1", uid="u-2")
        other = await bench.ensure("other:1", uid="u-1")
        # As upstream, by the name that the container has, not by what it means.
        named = await bench.ensure("other", uid="u-1")
        assert [found.reason for found in (first, second, other, named)] == ["ErrImagePull"] * 4
        bench.backoff.forget("u-1")
        assert isinstance(await bench.ensure("remote:1", uid="u-1"), PresentImage)

    on_bench(test)


def test_an_image_the_registry_does_not_have():
    async def test(bench: Bench) -> None:
        found = await bench.ensure("nowhere:1")
        assert isinstance(found, MissingImage)
        assert found.reason == "ErrImagePull"
        assert "nowhere:1" in found.message

    on_bench(test)


def test_a_pull_failure_of_the_registry_itself():
    async def main() -> None:
        clock = LoopClock(epoch=EPOCH)
        broken = FakeImage("broken:1", pull_failure=RpcFailure(Code.UNKNOWN, "manifest unknown"))
        runtime = FakeRuntime(start=EPOCH, script=Script(registry=registry_of(broken)))
        async with run_in_process(runtime, clock=clock) as client:
            assert await Bench(runtime, client, clock).ensure("broken:1") == MissingImage(
                "ErrImagePull", "manifest unknown"
            )

    run_virtual(main())


def test_a_pod_that_is_to_stop_no_longer_waits_for_its_image():
    async def test(bench: Bench) -> None:
        async def stop() -> None:
            await bench.clock.sleep(REMOTE.pull_time / 2)
            bench.stopping_pods.mark(PodUID("u-1"))

        async with asyncio.TaskGroup() as group:
            group.create_task(stop())
            with pytest.raises(PodStopping):
                await bench.ensure("remote:1")
        assert bench.clock.monotonic() < REMOTE.pull_time.total_seconds()
        with pytest.raises(PodStopping):
            await bench.ensure("here")

    on_bench(test)
