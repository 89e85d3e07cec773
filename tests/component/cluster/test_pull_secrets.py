"""Pods of a cluster pull their images with the secrets that they name."""

import base64
import json

import pytest

from klet.api.config import Secret
from klet.api.meta import ObjectMeta
from klet.testing.builders import IMAGE
from klet.testing.fake_runtime import FakeImage, FakeRuntime, Script, registry_of

PRIVATE = FakeImage("registry.example.com/team/app:1", login=("user", "right-pass"))
APP = {"name": "app", "image": PRIVATE.name}


@pytest.fixture
def private(node):
    """A node whose registry lets in only who has a login."""
    runtime = FakeRuntime(
        start=node.clock.now(), images=(FakeImage(name=IMAGE),), script=Script(registry=registry_of(PRIVATE))
    )
    node.machine.runtime = runtime
    return node


async def put_login(cluster, name, password):
    auth = base64.b64encode(f"user:{password}".encode()).decode()
    data = {".dockerconfigjson": json.dumps({"auths": {"registry.example.com": {"auth": auth}}}).encode()}
    secret = Secret(metadata=ObjectMeta(name=name), type="kubernetes.io/dockerconfigjson", data=data)
    await cluster.client.create(secret, "default")


def logins(node):
    pulls = [call.request for call in node.machine.runtime.calls if call.rpc == "PullImage"]
    return [(pull.auth.username, pull.auth.password) for pull in pulls]


def waits_for_image(pod):
    waiting = [each.state.waiting for each in pod.status.container_statuses] if pod is not None else []
    return any(each is not None and "ImagePull" in each.reason for each in waiting)


async def test_a_private_image_is_pulled_with_the_secret_of_the_pod(private, cluster):
    await put_login(cluster, "regcred", "right-pass")
    async with private.run():
        await private.bind(container=APP, imagePullSecrets=[{"name": "regcred"}])
        await private.until_running()
    assert logins(private) == [("user", "right-pass")]
    decisions = {cause.finding.decision for cause in private.machine.journal.all()}
    assert "FailedToRetrieveImagePullSecret" not in decisions
    assert "right-pass" not in f"{private.machine.journal.all()}"


async def test_a_missing_secret_is_reported_and_the_pull_is_tried(private):
    async with private.run():
        await private.bind(container=APP, imagePullSecrets=[{"name": "gone"}, {"name": "lost"}])
        reported = await private.reported("FailedToRetrieveImagePullSecret")
        await private.until(waits_for_image)
    assert reported[0] == (
        "Unable to retrieve some image pull secrets (gone, lost); attempting to pull the image may not succeed."
    )
    assert logins(private)[0] == ("", "")


async def test_an_image_that_is_there_needs_no_secret(private):
    async with private.run():
        await private.bind(imagePullSecrets=[{"name": "gone"}])
        await private.until_running()
        assert await private.reported("FailedToRetrieveImagePullSecret")
    assert logins(private) == []
