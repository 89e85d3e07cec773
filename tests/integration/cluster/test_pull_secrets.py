"""Pods of a real API server pull a private image, with the secret of their account or not at all."""

import pytest

from klet.testing.registry.tokens import PASSWORD, USER

pytestmark = [pytest.mark.root, pytest.mark.containerd]


def private(manifest, name, image, **spec):
    pod = manifest(name, main="exec sleep 1000", spec=spec)
    pod["spec"]["containers"][0] |= {"image": image, "imagePullPolicy": "Always"}
    return pod


async def test_the_secret_of_the_account_lets_its_pods_in(ready, api, agent, node, manifest, registry, private_image):
    login = (f"--docker-server={registry.address}", f"--docker-username={USER}", f"--docker-password={PASSWORD}")
    await api.kubectl("create", "secret", "docker-registry", "regcred", *login)
    await api.kubectl("create", "serviceaccount", "puller")
    await api.kubectl("patch", "serviceaccount", "puller", "-p", '{"imagePullSecrets": [{"name": "regcred"}]}')
    await api.create(private(manifest, "guest", private_image, serviceAccountName="puller"), node=node.name)
    pod = await api.until_pod("guest", lambda pod: pod.status.phase == "Running", what="Running")
    assert [each.name for each in pod.spec.image_pull_secrets] == ["regcred"]

    await api.create(private(manifest, "stranger", private_image, imagePullSecrets=[{"name": "gone"}]), node=node.name)
    event = await api.until_event("FailedToRetrieveImagePullSecret", about="stranger")
    assert (event.type, event.message) == (
        "Warning",
        "Unable to retrieve some image pull secrets (gone); attempting to pull the image may not succeed.",
    )
    await api.until_event("Failed", about="stranger")
    for name in ("guest", "stranger"):
        await api.delete(name)
        await api.until_gone(name)
    assert PASSWORD not in agent.log
