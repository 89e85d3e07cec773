"""Images of a real registry that lets in only who has a login, pulled by a real containerd."""

import pytest
from msgspec.structs import replace

from klet.aio.clock import SystemClock
from klet.api.config import Secret
from klet.api.meta import ObjectMeta
from klet.api.references import LocalObjectReference
from klet.images.node_logins import NoNodeLogins
from klet.images.pull_secrets import PullSecrets
from klet.images.sources import NoProviderLogins
from klet.journal.memory import MemoryJournal
from klet.model.images import MissingImage, PresentImage
from klet.model.objects import ObjectMissing
from klet.testing.builders import make_container, make_pod
from klet.testing.image_manager import build_image_manager
from klet.wire import cri_v1_pb2

pytestmark = [pytest.mark.root, pytest.mark.containerd]


class Secrets:
    """Logins of one registry by the names of secrets."""

    def __init__(self, **logins: bytes) -> None:
        self.logins = logins

    async def secret(self, namespace: str, name: str) -> Secret:
        if name not in self.logins:
            raise ObjectMissing(f'secret "{name}" not found')
        return Secret(
            metadata=ObjectMeta(name=name, namespace=namespace),
            type="kubernetes.io/dockerconfigjson",
            data={".dockerconfigjson": self.logins[name]},
        )


async def ensure(cri, image, secrets, *names):
    clock = SystemClock()
    journal = MemoryJournal(clock=clock)
    logins = PullSecrets(secrets=secrets, node=NoNodeLogins(), providers=NoProviderLogins())
    manager = build_image_manager(cri, logins, recorder=journal, clock=clock)
    container = replace(make_container("c", image=image), image_pull_policy="Always")
    pod = make_pod(container)
    references = tuple(LocalObjectReference(name=name) for name in names)
    pod = replace(pod, spec=replace(pod.spec, image_pull_secrets=references))
    sandbox = cri_v1_pb2.PodSandboxConfig(metadata=cri_v1_pb2.PodSandboxMetadata(name="pod", uid="uid-1"))
    found = await manager.ensure(pod, container, sandbox=sandbox, before_pull=lambda: None, parent=None)
    assert "-pass" not in str(journal.all())
    return found


async def test_the_secret_of_a_pod_lets_it_in(cri, private_image, registry):
    secrets = Secrets(wrong=registry.docker_config(password="wrong-pass"), right=registry.docker_config())
    refused = await ensure(cri, private_image, secrets, "wrong")
    assert isinstance(refused, MissingImage)
    assert refused.reason == "ErrImagePull"
    assert "authorization failed" in refused.message or "401 Unauthorized" in refused.message
    assert isinstance(await ensure(cri, private_image, secrets, "gone"), MissingImage)
    assert isinstance(await ensure(cri, private_image, secrets, "wrong", "right"), PresentImage)
