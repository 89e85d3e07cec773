"""Pulls with a login, over gRPC: what arrives at the runtime, and what is recorded of it."""

import base64
import json
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.config import Secret
from klet.api.meta import ObjectMeta
from klet.api.references import LocalObjectReference
from klet.cri.client import connect
from klet.images.node_logins import NoNodeLogins
from klet.images.pull_secrets import PullSecrets
from klet.images.sources import NoProviderLogins
from klet.journal.memory import MemoryJournal
from klet.model.images import ImageUser, MissingImage, PresentImage
from klet.model.objects import ObjectMissing
from klet.testing.builders import make_container, make_pod
from klet.testing.clock import ManualClock
from klet.testing.cri_server import serve_cri
from klet.testing.fake_runtime import FakeImage, FakeRuntime, Script, registry_of
from klet.testing.image_manager import build_image_manager
from klet.wire import cri_v1_pb2 as cri

IMAGE = "registry.example.com/team/app:1"
PRIVATE = FakeImage(IMAGE, login=("user", "right-pass"))
DENIED = (
    f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": '
    "pull access denied, authorization failed"
)


class Secrets:
    """Secrets by name."""

    def __init__(self):
        self.data = {}

    def put(self, name, **logins):
        """Logins by user name; two underscores stand for the slash before a path."""
        auths = {}
        for user, password in logins.items():
            place, _, name_of = user.rpartition("__")
            auth = base64.b64encode(f"{name_of}:{password}".encode()).decode()
            auths["registry.example.com" + (f"/{place}" if place else "")] = {"auth": auth}
        self.put_raw(name, json.dumps({"auths": auths}).encode())

    def put_raw(self, name, data):
        kind = "kubernetes.io/dockerconfigjson"
        metadata = ObjectMeta(name=name, namespace="default")
        self.data[name] = Secret(metadata=metadata, type=kind, data={".dockerconfigjson": data})

    async def secret(self, _namespace, name):
        if name not in self.data:
            raise ObjectMissing(f'secret "{name}" not found')
        return self.data[name]


class Bench:
    """An image manager whose runtime is at the other end of a socket."""

    def __init__(self, runtime, client, clock):
        self.runtime = runtime
        self.secrets = Secrets()
        self.journal = MemoryJournal(clock=clock)
        logins = PullSecrets(secrets=self.secrets, node=NoNodeLogins(), providers=NoProviderLogins())
        self.manager = build_image_manager(client, logins, recorder=self.journal, clock=clock)

    async def ensure(self, *secrets, image=IMAGE):
        container = replace(make_container("c", image=image), image_pull_policy="IfNotPresent")
        pod = make_pod(container)
        references = tuple(LocalObjectReference(name=name) for name in secrets)
        pod = replace(pod, spec=replace(pod.spec, image_pull_secrets=references))
        return await self.manager.ensure(
            pod, container, sandbox=cri.PodSandboxConfig(), before_pull=lambda: None, parent=None
        )

    def logins(self):
        """What arrived: user name and password of each pull, None for a pull without."""
        pulls = [call.request for call in self.runtime.calls if call.rpc == "PullImage"]
        return [(pull.auth.username, pull.auth.password) if pull.HasField("auth") else None for pull in pulls]

    def findings(self):
        return [(cause.finding.decision, cause.finding.message) for cause in self.journal.all()]


@pytest.fixture
async def bench(tmp_path):
    clock = ManualClock()
    runtime = FakeRuntime(start=clock.now(), script=Script(registry=registry_of(PRIVATE, FakeImage("public:1"))))
    async with (
        serve_cri(runtime, clock=clock, socket=tmp_path / "cri.sock") as endpoint,
        connect(runtime_endpoint=endpoint, timeout=timedelta(seconds=5)) as client,
    ):
        yield Bench(runtime, client, clock)


async def test_the_login_arrives(bench):
    bench.secrets.put("regcred", user="right-pass")
    assert await bench.ensure("regcred") == PresentImage(PRIVATE.image_id, ImageUser())
    assert bench.logins() == [("user", "right-pass")]


async def test_logins_are_tried_in_turn(bench):
    bench.secrets.put("a", team__other="wrong-pass", user="right-pass")
    assert await bench.ensure("a") == PresentImage(PRIVATE.image_id, ImageUser())
    assert bench.logins() == [("other", "wrong-pass"), ("user", "right-pass")]


async def test_none_is_accepted(bench):
    bench.secrets.put("a", user="wrong-pass-1")
    bench.secrets.put("b", user="wrong-pass-2")
    found = await bench.ensure("a", "b")
    assert found == MissingImage("ErrImagePull", DENIED)  # the same said twice is said once
    assert bench.logins() == [("user", "wrong-pass-1"), ("user", "wrong-pass-2")]  # and nobody tries without
    assert bench.findings()[-1] == ("Failed", f'Failed to pull image "{IMAGE}": {DENIED}')


async def test_a_pull_without_any_login(bench):
    assert await bench.ensure("gone") == MissingImage("ErrImagePull", DENIED)
    assert isinstance(await bench.ensure(image="public:1"), PresentImage)
    assert bench.logins() == [None, None]


async def test_a_failure_says_with_what_it_was_tried(bench):
    bench.secrets.put("regcred", user="wrong-pass")
    await bench.ensure("gone", "regcred", "lost")
    assert bench.journal.all()[-1].finding.measurements == {"logins": 1, "missing pull secrets": "gone, lost"}


async def test_a_login_of_another_registry_stays_here(bench):
    bench.secrets.put("regcred", user="right-pass")
    await bench.ensure("regcred", image="public:1")
    assert bench.logins() == [None]


async def test_a_secret_that_cannot_be_read(bench):
    bench.secrets.put_raw("bad", b'{"auths": {"registry.example.com": {"auth": "right-pass"}}}')
    text = 'image pull secret "default/bad", key .dockerconfigjson: unable to parse auth field, illegal base64 data'
    assert await bench.ensure("bad") == MissingImage("ErrImagePull", text)
    assert bench.findings() == [("Failed", text)]
    assert bench.logins() == []
    bench.secrets.put("bad", user="right-pass")  # such a failure delays nothing
    assert await bench.ensure("bad") == PresentImage(PRIVATE.image_id, ImageUser())


async def test_nothing_reveals_a_password(bench, caplog):
    caplog.set_level("DEBUG")
    bench.secrets.put("a", team__other="wrong-pass", user="right-pass")
    bench.secrets.put("b", user="wrong-pass")
    await bench.ensure("b")
    await bench.ensure("a")
    everything = f"{caplog.text} {[vars(record) for record in caplog.records]} {bench.journal.all()}"
    assert "Pulling" in everything
    assert "-pass" not in everything
