"""Who may use an image that is on the node, with the records of pulls on a disk in memory and the fake runtime."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.config import Secret
from klet.api.meta import ObjectMeta
from klet.api.references import LocalObjectReference
from klet.cri.client import CriClient
from klet.cri.errors import Code
from klet.host.errors import FileError
from klet.images.metrics import register_images, register_pulled_images
from klet.images.node_logins import NoNodeLogins
from klet.images.present_images import SEEN_FOR
from klet.images.pull_queue import PullQueue
from klet.images.pull_secrets import PullSecrets
from klet.images.pulled.files import PullDirectory
from klet.images.pulled.format import decode_record, encode_intent, encode_record, file_name
from klet.images.pulled.records import UNCERTAIN_FOR
from klet.images.pulled.store import PullRecordStore
from klet.images.settings import RecordLimits
from klet.images.sources import NoProviderLogins
from klet.journal.memory import MemoryJournal
from klet.metrics import MetricRegistry
from klet.model.images import MissingImage, PresentImage
from klet.model.objects import ObjectMissing
from klet.model.pods import PodUID
from klet.model.stopping_pods import PodStopping, StoppingPods
from klet.simulation.host_faults import HostFaults
from klet.simulation.killable import KillableTransport, KillSwitch
from klet.testing.builders import make_container, make_pod
from klet.testing.fake_runtime import FakeImage, FakeRuntime, Fault, Script, registry_of
from klet.testing.fake_runtime.faults import Fail, HalfDone
from klet.testing.image_manager import DEFAULT_POLICY, build_image_manager, build_pulled_images
from klet.testing.in_process import REQUEST_TIMEOUT, run_in_process
from klet.testing.loop import EPOCH, run_virtual
from klet.testing.pull_files import MemoryPullFiles
from klet.wire import cri_v1_pb2 as cri

PULLING, PULLED = PullDirectory.PULLING, PullDirectory.PULLED
PRIVATE = FakeImage("registry.example.com/team/app:1", login=("user", "right-pass"), pull_time=timedelta(seconds=2))
PUBLIC = FakeImage("public:1", pull_time=timedelta(seconds=2))
LOADED = FakeImage("registry.example.com/team/loaded:1", login=("user", "right-pass"))
IMAGE = PRIVATE.name
USABLE = "already present on machine and can be accessed by the pod"


class Secrets:
    """Pull secrets: two of the same login, one of another."""

    def __init__(self):
        self.passwords = {"good": "right-pass", "same": "right-pass", "bad": "wrong-pass"}

    async def secret(self, _namespace, name):
        if name not in self.passwords:
            raise ObjectMissing(f'secret "{name}" not found')
        auth = base64.b64encode(f"user:{self.passwords[name]}".encode()).decode()
        data = {".dockerconfigjson": json.dumps({"auths": {"registry.example.com": {"auth": auth}}}).encode()}
        metadata = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}")
        return Secret(metadata=metadata, type="kubernetes.io/dockerconfigjson", data=data)


class FailingFiles(MemoryPullFiles):
    """Files whose disk fails as long as a test wants it to."""

    def __init__(self):
        super().__init__()
        self.fails = set()

    async def read(self, directory, name):
        self._fail("read", directory)
        return await super().read(directory, name)

    async def write(self, directory, name, data):
        self._fail("write", directory)
        await super().write(directory, name, data)

    def _fail(self, action, directory):
        if (action, directory) in self.fails:
            raise FileError(f"cannot {action} {directory}: Input/output error", path=Path(directory))


class Node:
    """What outlives the agent: the runtime, the disk, the secrets; and the agent of now."""

    def __init__(self, runtime: FakeRuntime, client: CriClient, clock: LoopClock, policy: str) -> None:
        self.runtime = runtime
        self.clock = clock
        self.files = FailingFiles()
        self.secrets = Secrets()
        self.policy = policy
        self.client = client
        self.restart()

    def restart(self, *, files=None, client=None, metrics=None) -> None:
        """Start another agent; what the one before had in memory is gone."""
        client = client or self.client
        self.journal = MemoryJournal(clock=self.clock)
        self.stopping_pods = StoppingPods()
        self.store = PullRecordStore(files=files or self.files, most_cached=100)
        self.records = build_pulled_images(self.store, client, clock=self.clock, policy=self.policy, metrics=metrics)
        self.manager = build_image_manager(
            client,
            PullSecrets(secrets=self.secrets, node=NoNodeLogins(), providers=NoProviderLogins()),
            recorder=self.journal,
            clock=self.clock,
            stopping_pods=self.stopping_pods,
            queue=PullQueue(at_once=1),
            records=self.records,
            metrics=metrics,
        )

    async def ensure(self, *secrets: str, image: str = IMAGE, policy: str = "IfNotPresent", uid: str = "u-1"):
        container = replace(make_container("c", image=image), image_pull_policy=policy)
        pod = make_pod(container, uid=uid)
        references = tuple(LocalObjectReference(name=name) for name in secrets)
        pod = replace(pod, spec=replace(pod.spec, image_pull_secrets=references))
        return await self.manager.ensure(
            pod, container, sandbox=cri.PodSandboxConfig(), before_pull=lambda: None, parent=None
        )

    async def may_use(self, *secrets: str, image: str = IMAGE) -> bool:
        """Return whether a pod of its own gets the image without a pull."""
        before = self.pulls()
        uid = f"u-{len(self.runtime.calls)}"
        found = await self.ensure(*secrets, image=image, uid=uid)
        return isinstance(found, PresentImage) and self.pulls() == before

    def pulls(self) -> int:
        return sum(call.rpc == "PullImage" for call in self.runtime.calls)

    def events(self) -> list[tuple[str, str]]:
        return [(str(cause.finding.decision), cause.finding.message) for cause in self.journal.all()]

    async def runtime_has(self, image: FakeImage) -> bool:
        images = (await self.client.list_images(cri.ListImagesRequest())).images
        return image.image_id in {each.id for each in images}

    def record(self, image: FakeImage = PRIVATE):
        data = self.files.content.get((PULLED, file_name(image.image_id)))
        return None if data is None else decode_record(data)

    def intents(self) -> list[str]:
        return [json.loads(data)["image"] for (place, _), data in self.files.content.items() if place is PULLING]


def on_node(test: Callable[[Node], Awaitable[None]], *, policy: str = DEFAULT_POLICY) -> None:
    async def main() -> None:
        clock = LoopClock(epoch=EPOCH)
        registry = registry_of(PRIVATE, PUBLIC, LOADED)
        runtime = FakeRuntime(start=EPOCH, script=Script(registry=registry), images=(LOADED,))
        async with run_in_process(runtime, clock=clock) as client:
            await test(Node(runtime, client, clock, policy))

    run_virtual(main())


def test_who_has_the_credentials_uses_the_image_and_nobody_else():
    async def test(node: Node) -> None:
        assert isinstance(await node.ensure("good"), PresentImage)
        assert await node.may_use("good")
        assert node.events()[-1] == ("Pulled", f'Container image "{IMAGE}" {USABLE}')
        assert await node.may_use("same")  # another secret with the same login
        assert not await node.may_use("bad")
        found = await node.ensure(uid="stranger")
        assert (found.reason, "pull access denied" in found.message) == ("ErrImagePull", True)
        assert node.intents() == []

    on_node(test)


def test_a_record_has_the_credentials_that_pulled_and_those_that_used():
    async def test(node: Node) -> None:
        await node.ensure("bad", "good")
        (secrets,) = node.record().credential_mapping.values()
        assert [each.name for each in secrets.kubernetes_secrets] == ["good"]
        await node.may_use("same")
        (secrets,) = node.record().credential_mapping.values()
        assert [each.name for each in secrets.kubernetes_secrets] == ["good", "same"]
        assert list(node.record().credential_mapping) == ["registry.example.com/team/app"]
        assert "right-pass" not in str(node.files.content)

    on_node(test)


def test_a_secret_with_a_new_password_is_still_the_same_secret():
    async def test(node: Node) -> None:
        await node.ensure("good")
        node.secrets.passwords["good"] = "newer-pass"
        assert await node.may_use("good")
        node.restart()
        node.secrets.passwords["same"] = "newer-pass"
        assert await node.may_use("same")  # the record has learned the new hash

    on_node(test)


def test_what_was_pulled_without_credentials_is_for_all():
    async def test(node: Node) -> None:
        await node.ensure(image="public:1")
        assert await node.may_use(image="public:1")
        assert await node.may_use("bad", image="public:1")
        assert node.record(PUBLIC).credential_mapping["docker.io/library/public"].node_pods_accessible

    on_node(test)


def test_the_same_image_under_another_name_is_another_question():
    async def test(node: Node) -> None:
        await node.ensure(image="public:1")
        assert not await node.may_use(image=PUBLIC.image_id)

    on_node(test)


@pytest.mark.parametrize(
    ("policy", "loaded", "pulled"),
    [
        ("NeverVerify", True, True),
        ("NeverVerifyPreloadedImages", True, False),
        ("NeverVerifyAllowlistedImages", False, False),
        ("AlwaysVerify", False, False),
    ],
)
def test_what_a_pod_without_credentials_may_use(policy, loaded, pulled):
    async def test(node: Node) -> None:
        await node.ensure("good")
        assert await node.may_use(image=LOADED.name) is loaded
        assert await node.may_use() is pulled

    on_node(test, policy=policy)


def test_a_pod_that_never_pulls_is_refused_what_it_may_not_use():
    async def test(node: Node) -> None:
        await node.ensure("good")
        registry = MetricRegistry()
        node.restart(metrics=register_images(registry))
        text = f'Container image "{IMAGE}" is not present with pull policy of Never'
        assert await node.ensure(policy="Never") == MissingImage("ErrImageNeverPull", text)
        counted = 'ensure_image_requests_total{present_locally="true",pull_policy="never",pull_required="true"} 1'
        assert counted in registry.write().decode()
        assert isinstance(await node.ensure("good", policy="Never"), PresentImage)

    on_node(test)


def test_records_hold_after_a_restart():
    async def test(node: Node) -> None:
        await node.ensure("good")
        node.restart()
        assert await node.may_use("good")
        assert not await node.may_use()

    on_node(test)


def test_secrets_that_cannot_be_read_fail_the_use_and_not_the_agent():
    async def test(node: Node) -> None:
        await node.ensure("good")
        good, node.secrets.secret = node.secrets.secret, broken
        found = await node.ensure("good", uid="u-2")
        assert (found.reason, "broken" in found.message) == ("ErrImagePull", True)
        node.secrets.secret = good
        assert await node.may_use("good")

    async def broken(_namespace, name):
        return Secret(
            metadata=ObjectMeta(name=f"broken-{name}", namespace="default"),
            type="kubernetes.io/dockerconfigjson",
            data={".dockerconfigjson": b"{"},
        )

    on_node(test)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x00" * 4096, id="zeros"),
        pytest.param(b"[" * 100_000, id="deeply nested"),
        pytest.param(encode_intent("x"), id="an intent"),
    ],
)
def test_a_damaged_record_costs_a_pull_and_nothing_else(content, caplog):
    async def test(node: Node) -> None:
        await node.ensure("good")
        node.files.content[PULLED, file_name(PRIVATE.image_id)] = content
        node.restart()
        await node.records.run()
        assert not await node.may_use()
        assert not await node.may_use("good")  # it has pulled
        assert await node.may_use("good")
        assert not await node.may_use()

    on_node(test)
    assert "cannot be read" in caplog.text


def test_a_record_about_another_image_counts_as_none():
    async def test(node: Node) -> None:
        await node.ensure("good")
        await node.ensure(image="public:1")
        content = node.files.content
        content[PULLED, file_name(PRIVATE.image_id)] = content[PULLED, file_name(PUBLIC.image_id)]
        node.restart()
        assert await node.may_use()  # upstream's rule: without a record it was not pulled here

    on_node(test)


def test_a_disk_that_does_not_read_costs_pulls(caplog):
    async def test(node: Node) -> None:
        await node.ensure("good")
        node.restart()
        node.files.fails = {("read", PULLED)}
        assert not await node.may_use()
        assert isinstance(await node.ensure("good", uid="u-2"), PresentImage)

    on_node(test)
    assert "Record of an image cannot be read" in caplog.text


def test_a_disk_that_takes_no_intent_fails_the_pull():
    async def test(node: Node) -> None:
        node.files.fails = {("write", PULLING)}
        text = (
            f'Failed to record image pull intent for container image "{IMAGE}": '
            "cannot write pulling: Input/output error"
        )
        assert await node.ensure("good") == MissingImage("ErrImagePull", text)
        assert node.events() == [("Failed", text)]
        assert node.pulls() == 0
        node.files.fails = set()
        node.runtime.faults.add(Fault("PullImage", Fail(Code.UNKNOWN, "no such host")))
        assert isinstance(await node.ensure("good"), MissingImage)  # it has not backed off, and pulls
        assert (node.pulls(), node.intents()) == (1, [])

    on_node(test)


def test_a_disk_that_takes_no_record_leaves_the_intent(caplog):
    async def test(node: Node) -> None:
        node.files.fails = {("write", PULLED)}
        assert isinstance(await node.ensure("good"), PresentImage)
        assert node.intents() == [IMAGE]
        assert not await node.may_use()
        node.files.fails = set()
        assert isinstance(await node.ensure("good", uid="u-2"), PresentImage)
        assert node.intents() == []
        assert await node.may_use("good")

    on_node(test)
    assert "Pulled image not recorded" in caplog.text


@pytest.mark.parametrize("effect", [Fail(Code.UNKNOWN, "no such host"), Fail(Code.NOT_FOUND, "no such image")])
def test_a_pull_that_failed_leaves_nothing(effect):
    async def test(node: Node) -> None:
        node.runtime.faults.add(Fault("PullImage", effect))
        assert isinstance(await node.ensure("good"), MissingImage)
        assert node.files.content == {}

    on_node(test)


@pytest.mark.parametrize("code", [Code.UNAVAILABLE, Code.UNKNOWN])
def test_a_pull_that_failed_after_its_effect_leaves_the_intent(code):
    async def test(node: Node) -> None:
        node.runtime.faults.add(Fault("PullImage", HalfDone(code, "connection lost")))
        assert isinstance(await node.ensure("good"), MissingImage)
        assert (node.intents(), await node.runtime_has(PRIVATE)) == ([IMAGE], True)
        assert not await node.may_use()
        node.restart()
        assert not await node.may_use()
        assert (node.intents(), node.record().credential_mapping) == ([], {})

    on_node(test)


def test_a_pod_that_stops_in_the_middle_of_its_pull_leaves_the_intent():
    async def test(node: Node) -> None:
        async def stop() -> None:
            await node.clock.sleep(PRIVATE.pull_time / 2)
            node.stopping_pods.mark(PodUID("u-1"))

        async with asyncio.TaskGroup() as group:
            group.create_task(stop())
            with pytest.raises(PodStopping):
                await node.ensure("good")
        assert node.intents() == [IMAGE]
        assert isinstance(await node.ensure("good", uid="u-2"), PresentImage)
        assert node.intents() == []

    on_node(test)


def test_an_image_that_was_there_before_a_pull_without_an_end_stays_usable():
    """Offline: a pod with pull policy Always must not take a loaded image away from the others."""

    async def test(node: Node) -> None:
        node.runtime.faults.add(Fault("PullImage", Fail(Code.UNAVAILABLE, "connection lost"), count=2))
        assert isinstance(await node.ensure("good", image=LOADED.name, policy="Always"), MissingImage)
        assert node.intents() == [LOADED.name]
        assert await node.may_use(image=LOADED.name)
        assert node.intents() == []

    on_node(test)


@pytest.mark.parametrize(
    ("fault", "image", "is_recorded", "may_all_use"),
    [
        pytest.param(Fail, PRIVATE, False, False, id="it has not come"),
        pytest.param(HalfDone, PRIVATE, True, False, id="it has come all the same"),
        pytest.param(Fail, LOADED, False, True, id="it was there before"),
    ],
)
def test_a_pull_without_an_end_is_settled_after_a_day(fault, image, is_recorded, may_all_use):
    """Otherwise each pod that is deleted in the middle of its pull could leave a file for ever."""

    async def test(node: Node) -> None:
        node.runtime.faults.add(Fault("PullImage", fault(Code.UNAVAILABLE, "connection lost")))
        await node.ensure("good", image=image.name, policy="Always")
        await node.clock.sleep(UNCERTAIN_FOR - timedelta(seconds=10))
        await node.records.prune(remaining=(), before=EPOCH)
        assert node.intents() == [image.name]
        await node.clock.sleep(timedelta(seconds=10))
        await node.records.prune(remaining=(), before=EPOCH)
        assert (node.intents(), node.record(image) is not None) == ([], is_recorded)
        assert await node.may_use(image=image.name) == may_all_use

    on_node(test)


def test_two_pulls_without_an_end_trust_no_image_that_only_one_of_them_saw():
    async def test(node: Node) -> None:
        for fault in (Fail(Code.UNAVAILABLE, "connection lost"), HalfDone(Code.UNAVAILABLE, "connection lost")):
            node.runtime.faults.add(Fault("PullImage", fault))
            await node.ensure("good", image=LOADED.name, policy="Always", uid=f"u-{node.pulls()}")
            await node.client.remove_image(cri.RemoveImageRequest(image=cri.ImageSpec(image=LOADED.name)))
            await node.clock.sleep(SEEN_FOR)
        node.runtime.load_image(LOADED)
        assert not await node.may_use(image=LOADED.name)

    on_node(test)


def test_an_image_that_is_being_pulled_counts_as_pulled_here():
    async def test(node: Node) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(node.ensure("good", image=LOADED.name, policy="Always"))
            await asyncio.sleep(0)
            assert not await node.may_use(image=LOADED.name)

    on_node(test)


def test_intents_of_the_previous_run_become_records_where_their_images_are_there():
    async def test(node: Node) -> None:
        for image in (LOADED.name, "registry.example.com/team/gone:1"):
            node.files.content[PULLING, file_name(image)] = encode_intent(image)
        node.restart()
        assert not await node.may_use(image=LOADED.name)
        assert node.record(LOADED).credential_mapping == {}
        assert node.intents() == ["registry.example.com/team/gone:1"]

    on_node(test)


def test_a_short_name_is_found_by_its_long_one():
    async def test(node: Node) -> None:
        await node.ensure(image="public")
        node.runtime.faults.add(Fault("PullImage", HalfDone(Code.UNAVAILABLE, "connection lost")))
        await node.ensure(image="public:1", uid="u-2")
        assert node.intents() == ["public:1"]
        node.restart()
        assert not await node.may_use(image="docker.io/library/public:1")
        assert node.intents() == []

    on_node(test)


def test_a_runtime_that_lists_no_images_at_start_is_asked_again(caplog):
    async def test(node: Node) -> None:
        node.files.content[PULLING, file_name(LOADED.name)] = encode_intent(LOADED.name)
        node.restart()
        node.runtime.faults.add(Fault("ListImages", Fail(Code.UNAVAILABLE, "gone")))
        await node.records.run()
        assert node.intents() == [LOADED.name]
        await node.records.run()
        assert node.intents() == []

    on_node(test)
    assert "pulls were interrupted" in caplog.text


def test_files_of_the_older_version_are_written_again():
    async def test(node: Node) -> None:
        await node.ensure("good")
        newest = dict(node.files.content)
        for key, data in newest.items():
            node.files.content[key] = data.replace(b"v1beta1", b"v1alpha1")
        node.restart()
        await node.records.run()
        assert node.files.content == newest

    on_node(test)


def test_records_of_images_that_are_gone_are_removed():
    async def test(node: Node) -> None:
        await node.ensure("good")
        await node.ensure(image="public:1")
        now = node.clock.now()
        await node.records.prune(remaining=(), before=now - timedelta(hours=1))
        assert node.record() is not None
        await node.records.prune(remaining=(PUBLIC.image_id,), before=now + timedelta(seconds=1))
        assert (node.record(), node.record(PUBLIC) is not None) == (None, True)

    on_node(test)


def test_an_image_that_is_pulled_again_while_a_collection_runs_keeps_its_record():
    """The collection has removed the image, or has not seen it; the second pull teaches the record nothing new."""

    async def test(node: Node) -> None:
        await node.ensure("good")
        await node.clock.sleep(timedelta(minutes=1))
        began = node.clock.now()
        await node.client.remove_image(cri.RemoveImageRequest(image=cri.ImageSpec(image=PRIVATE.image_id)))
        await node.clock.sleep(SEEN_FOR)
        await node.ensure("good")
        await node.records.prune(remaining=(), before=began)
        assert [await node.may_use(), await node.may_use("same")] == [False, True]

    on_node(test)


def test_an_image_with_more_credentials_than_a_record_holds_can_still_be_used():
    async def test(node: Node) -> None:
        await node.ensure("good")
        record = node.record()
        ((repository, known),) = record.credential_mapping.items()
        (secret,) = known.kubernetes_secrets
        many = tuple(replace(secret, name=f"s{number}" * 20, credential_hash=f"{number:064}") for number in range(5000))
        full = replace(record, credential_mapping={repository: replace(known, kubernetes_secrets=many)})
        node.files.content[PULLED, file_name(PRIVATE.image_id)] = encode_record(full)
        node.restart()
        await node.ensure("same", uid="u-2", policy="Always")
        assert len(node.files.content[PULLED, file_name(PRIVATE.image_id)]) < 1000
        assert await node.may_use("same")

    on_node(test)


def test_the_metrics_of_records_and_checks():
    async def test(node: Node) -> None:
        registry = MetricRegistry()
        node.restart(metrics=register_images(registry))
        register_pulled_images(registry, node.store, node.records.pulls_in_flight, RecordLimits(10, 50))
        await node.ensure("good")
        await node.ensure(image="public:1")
        for secrets in (("good",), ("same",), ()):
            await node.may_use(*secrets)
        await node.may_use(image=LOADED.name)
        node.runtime.faults.add(Fault("PullImage", HalfDone(Code.UNAVAILABLE, "connection lost")))
        await node.ensure(image="public:1", policy="Always", uid="u-9")
        name = "kubelet_imagemanager_"
        lines = [line for line in registry.write().decode().splitlines() if line.startswith(name)]
        assert {key.removeprefix(name): float(value) for key, value in (line.split(" ") for line in lines)} == {
            'image_mustpull_checks_total{result="credentialRecordFound"}': 2,
            'image_mustpull_checks_total{result="mustAuthenticate"}': 1,
            'image_mustpull_checks_total{result="credentialPolicyAllowed"}': 1,
            "ondisk_pullintents": 1,
            "ondisk_pulledrecords": 2,
            "inmemory_pullintents_usage_percent": 0,
            "inmemory_pulledrecords_usage_percent": 4,
        }

    on_node(test)


class Unobserved:
    """Sees every call and does nothing."""

    def before(self, rpc, request):
        pass

    def after(self, rpc, request):
        pass


async def kill_in_pull(node: Node, *, calls: int, after_effect: bool, image: str, policy: str) -> bool:
    """Let one pull be the last of an agent, which is killed at that call; return False if it got through."""
    switch = KillSwitch()
    transport = KillableTransport(inner=node.client.images, kill_switch=switch, observer=Unobserved())
    client = CriClient(runtime=transport, images=transport, timeout=REQUEST_TIMEOUT)
    files = HostFaults(clock=node.clock).wrap(node.files, "pull records", gate=switch, error=FileError)
    switch.kill_at_call(calls=calls, after_effect=after_effect)
    node.restart(files=files, client=client)
    async with asyncio.TaskGroup() as group:
        pull = group.create_task(node.ensure("good", image=image, policy=policy))
        death = group.create_task(switch.killed.wait())
        await asyncio.wait((pull, death), return_when=asyncio.FIRST_COMPLETED)
        was_killed = not pull.done()
        pull.cancel()
        death.cancel()
    return was_killed


@pytest.mark.parametrize("after_effect", [False, True])
@pytest.mark.parametrize("pulls_before", [0, 1])
def test_an_agent_that_is_killed_at_any_effect_of_a_pull_leaves_no_image_to_strangers(after_effect, pulls_before):
    """Whatever is on the node then was pulled with credentials; who has none gets nothing, who has them all."""
    killed = []

    def life(calls: int) -> None:
        async def test(node: Node) -> None:
            for _ in range(pulls_before):
                await node.ensure("good")
            killed.append(await kill_in_pull(
                node, calls=calls, after_effect=after_effect, image=IMAGE, policy="Always"))  # fmt: skip
            was_there = await node.runtime_has(PRIVATE)
            node.restart()
            await node.records.run()
            assert not await node.may_use()
            if was_there:
                assert node.intents() == []
                assert node.record() is not None
            assert isinstance(await node.ensure("good", uid="owner"), PresentImage)
            assert await node.may_use("good")
            assert not await node.may_use()
            assert node.intents() == []

        on_node(test)

    calls = 0
    while not killed or killed[-1]:
        calls += 1
        life(calls)
    # names twice, image status, intent, pull, image status, record read and written, intent removed
    assert calls >= 8


@pytest.mark.parametrize("after_effect", [False, True])
def test_an_agent_that_is_killed_while_it_settles_is_followed_by_one_that_does(after_effect):
    killed = []

    def life(calls: int) -> None:
        async def test(node: Node) -> None:
            node.files.content[PULLING, file_name(LOADED.name)] = encode_intent(LOADED.name)
            killed.append(await kill_in_pull(
                node, calls=calls, after_effect=after_effect, image=LOADED.name, policy="Never"))  # fmt: skip
            node.restart()
            assert not await node.may_use(image=LOADED.name)
            assert (node.intents(), node.record(LOADED).credential_mapping) == ([], {})

        on_node(test)

    calls = 0
    while not killed or killed[-1]:
        calls += 1
        life(calls)
    assert calls >= 5
