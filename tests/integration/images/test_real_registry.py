"""Pulls from a real registry by a real containerd: who is let in, what trouble looks like, what resumes."""

import asyncio
import json
import logging
import re
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.config import Secret
from klet.api.meta import ObjectMeta
from klet.api.references import LocalObjectReference
from klet.config.credential_provider import CredentialProvider
from klet.host.plugin_programs import PluginPrograms
from klet.images.docker_config import parse_docker_config_json
from klet.images.node_logins import NoNodeLogins
from klet.images.providers.logins import ProviderKeyring
from klet.images.providers.metrics import register_providers
from klet.images.providers.plugin import ProviderPlugin, ProviderPorts
from klet.images.pull_backoff import PullBackoff
from klet.images.pull_secrets import PullSecrets
from klet.images.sources import NoProviderLogins
from klet.journal.memory import MemoryJournal
from klet.metrics import MetricRegistry
from klet.model.images import MissingImage, PresentImage
from klet.objectcache.standalone import StandaloneAccounts, StandaloneObjects, StandaloneTokens
from klet.testing.builders import make_container, make_pod
from klet.testing.clock import ManualClock
from klet.testing.image_manager import build_image_manager
from klet.testing.registry.faults import BLOBS, MANIFESTS, Answer, CutOff, HangUp, Hold
from klet.testing.registry.tokens import PASSWORD, USER
from klet.wire import cri_v1_pb2 as pb

pytestmark = [pytest.mark.root, pytest.mark.containerd]
V1 = "credentialprovider.kubelet.k8s.io/v1"
WRONG = "wrong-pass"
NO_ANSWER = "EOF|connection reset by peer|broken pipe|server closed idle connection"
"""What Go makes of a connection that is closed, by whether it was in use before."""


class PodSecrets:
    """The pull secret `regcred` of the test's pod."""

    def __init__(self, data):
        self.data = data

    async def secret(self, namespace, name):
        return Secret(
            metadata=ObjectMeta(name=name, namespace=namespace, uid="secret-1"),
            type="kubernetes.io/dockerconfigjson",
            data={".dockerconfigjson": self.data},
        )


class NodeConfig:
    """The file with the node's own logins."""

    def __init__(self, data):
        self.data = data

    async def read(self):
        return parse_docker_config_json(self.data)


class Puller:
    """An image manager on the real containerd, and everything that it says."""

    def __init__(self, cri, caplog):
        caplog.set_level(logging.DEBUG)
        self.caplog = caplog
        self.clock = ManualClock()
        self.journal = MemoryJournal(clock=self.clock)
        self.backoff = PullBackoff()
        self._cri = cri

    async def pull(self, image, *, secret=b"", node=b"", providers=None):
        """What the manager makes of a pod with the image, and with this secret on a node with these logins."""
        logins = PullSecrets(
            secrets=PodSecrets(secret) if secret else StandaloneObjects(),
            node=NodeConfig(node) if node else NoNodeLogins(),
            providers=providers or NoProviderLogins(),
        )
        manager = build_image_manager(self._cri, logins, recorder=self.journal, clock=self.clock, backoff=self.backoff)
        container = replace(make_container("c", image=image), image_pull_policy="Always")
        pod = make_pod(container)
        references = (LocalObjectReference(name="regcred"),) if secret else ()
        pod = replace(pod, spec=replace(pod.spec, image_pull_secrets=references))
        sandbox = pb.PodSandboxConfig(metadata=pb.PodSandboxMetadata(name="pod", uid="uid-1"))
        return await manager.ensure(pod, container, sandbox=sandbox, before_pull=lambda: None, parent=None)

    def decisions(self):
        return [str(cause.finding.decision) for cause in self.journal.all()]

    def written(self):
        """Everything that would be on disk, at the API server or in the log."""
        records = [repr(vars(record)) for record in self.caplog.records]
        return "\n".join([*records, *(repr(cause) for cause in self.journal.all())])


@pytest.fixture
def puller(cri, caplog):
    made = Puller(cri, caplog)
    yield made
    # Bytes of logins, as they are and as they travel.
    for secret in (PASSWORD, WRONG, "dXNlcjpyaWdodC1wYXNz", "dXNlcjp3cm9uZy1wYXNz", "eyJ0eXAi"):
        assert secret not in made.written()


@pytest.fixture
def provider(tmp_path):
    """A credential provider plugin for a registry, that says what it is told to."""

    def build(registry, *, password=PASSWORD, clock):
        directory = tmp_path / "plugins"
        directory.mkdir(exist_ok=True)
        login = {registry.address: {"username": USER, "password": password}}
        answer = {"kind": "CredentialProviderResponse", "apiVersion": V1, "cacheKeyType": "Registry", "auth": login}
        program = directory / "provider"
        program.write_text(f"#!/bin/sh\ncat >>{tmp_path}/requests\ncat <<'EOF'\n{json.dumps(answer)}\nEOF\n")
        program.chmod(0o755)
        configured = CredentialProvider(
            name="provider",
            match_images=(registry.address,),
            default_cache_duration=timedelta(hours=1),
            api_version=V1,
        )
        ports = ProviderPorts(
            runner=PluginPrograms(environment={"PATH": "/usr/bin:/bin"}),
            metrics=register_providers(MetricRegistry(), names=["provider"], config_hash=""),
            clock=clock,
        )
        plugin = ProviderPlugin(provider=configured, directory=directory, ports=ports)
        return ProviderKeyring(
            plugins=[plugin],
            accounts=StandaloneAccounts(),
            tokens=StandaloneTokens(),
            recorder=MemoryJournal(clock=clock),
        )

    return build


@pytest.mark.parametrize("kind", ["basic", "token"])
@pytest.mark.parametrize("way", ["secret", "node", "provider"])
async def test_a_login_lets_in_however_it_is_known(puller, push, provider, registry_process, token_registry, kind, way):
    registry = registry_process.registry if kind == "basic" else token_registry
    image = await push(registry)

    async def pull(password):
        if way == "provider":
            return await puller.pull(image, providers=provider(registry, password=password, clock=puller.clock))
        return await puller.pull(image, **{way: registry.docker_config(password=password)})

    refused = await pull(WRONG)
    assert isinstance(refused, MissingImage)
    assert refused.reason == "ErrImagePull"
    assert "authorization failed" in refused.message or "401 Unauthorized" in refused.message
    puller.clock.advance(timedelta(seconds=10))
    assert isinstance(await pull(PASSWORD), PresentImage)
    assert puller.decisions() == ["Pulling", "Failed", "Pulling", "Pulled"]


def failed(image, why):
    return re.compile(
        rf'(rpc error: code = NotFound desc = )?failed to pull and unpack image "{re.escape(image)}": .*({why})'
    )


@pytest.mark.parametrize(
    ("pattern", "fault", "why"),
    [
        pytest.param(MANIFESTS, Answer(401), "authorization failed|401 Unauthorized", id="401"),
        pytest.param(MANIFESTS, Answer(403), "403 Forbidden", id="403"),
        pytest.param(MANIFESTS, Answer(404), "not found", id="404"),
        pytest.param(MANIFESTS, Answer(429), "429 Too Many Requests", id="429"),
        pytest.param(MANIFESTS, Answer(500), "500 Internal Server Error", id="500 for the manifest"),
        pytest.param(MANIFESTS, Answer(503), "503 Service Unavailable", id="503 for the manifest"),
        pytest.param(MANIFESTS, HangUp(), NO_ANSWER, id="no answer for the manifest"),
        pytest.param(BLOBS, Answer(403), "403 Forbidden", id="403 for a blob"),
        pytest.param(BLOBS, Answer(502), "502 Bad Gateway", id="502 for a blob"),
        pytest.param(BLOBS, HangUp(), NO_ANSWER, id="no answer for a blob"),
    ],
)
async def test_a_registry_in_trouble_is_named_and_tried_again_after_the_back_off(
    puller, push, proxy, pattern, fault, why
):
    image = await push(proxy.registry, sizes=(300_000,))
    right = proxy.registry.docker_config()
    proxy.inject(pattern, fault)
    first = await puller.pull(image, secret=right)
    assert isinstance(first, MissingImage)
    assert first.reason == "ErrImagePull"
    assert failed(image, why).match(first.message), first.message
    asked = len(proxy.seen)

    waits = await puller.pull(image, secret=right)
    assert isinstance(waits, MissingImage)
    assert waits.reason == "ImagePullBackOff"
    assert waits.message == f'Back-off pulling image "{image}": ErrImagePull: {first.message}'
    assert len(proxy.seen) == asked  # the registry is left alone

    puller.clock.advance(timedelta(seconds=10))
    proxy.heal()
    assert isinstance(await puller.pull(image, secret=right), PresentImage)
    assert puller.decisions() == ["Pulling", "Failed", "BackOff", "Pulling", "Pulled"]


async def test_a_blob_that_breaks_off_is_resumed_within_the_pull(puller, push, proxy):
    image = await push(proxy.registry, sizes=(300_000,))
    # Each request for the layer breaks off; that for the configuration is shorter.
    proxy.inject(BLOBS, CutOff(after=100_000))
    found = await puller.pull(image, secret=proxy.registry.docker_config())
    assert isinstance(found, PresentImage)
    assert "bytes=100000-" in {request.range for request in proxy.seen}


async def test_a_registry_that_dies_in_the_middle_of_a_blob(puller, push, proxy, registry_process):
    image = await push(proxy.registry, sizes=(20_000_000,))
    right = proxy.registry.docker_config()
    hold = Hold(after=5_000_000)
    proxy.inject(BLOBS, hold)
    async with asyncio.TaskGroup() as group:
        pulling = group.create_task(puller.pull(image, secret=right))
        await hold.reached.wait()
        registry_process.kill()
        hold.go_on.set()
    first = pulling.result()
    assert isinstance(first, MissingImage)
    assert first.reason == "ErrImagePull"
    assert failed(image, "").match(first.message)

    puller.clock.advance(timedelta(seconds=10))
    down = await puller.pull(image, secret=right)
    assert isinstance(down, MissingImage)

    await registry_process.start()
    proxy.heal()
    puller.clock.advance(timedelta(seconds=20))
    proxy.seen.clear()
    assert isinstance(await puller.pull(image, secret=right), PresentImage)
