"""The images of a pod's volumes."""

import asyncio

import pytest

from klet.api.codec import convert
from klet.api.pod import Pod
from klet.model.images import ImageUser, MissingImage, PresentImage
from klet.runtime.errors import StartError
from klet.runtime.pod_images import PodImages, volume_images
from klet.testing.builders import make_container

PRESENT = PresentImage("ref", ImageUser(uid=0))
MISSING = MissingImage("ErrImagePull", "no such host")


class Ensured:
    def __init__(self):
        self.asked = []

    async def ensure(self, pod, container, **rest):
        assert pod.metadata.name == "p"
        assert set(rest) == {"sandbox", "handler", "before_pull", "parent"}
        self.asked.append((container.image, container.image_pull_policy))
        return PRESENT


class Sandbox:
    sandbox_config = None
    image_handler = ""


class Turn:
    def give_back(self):
        pass


def pod_of():
    volumes = [
        {"name": "a", "image": {"reference": "models:1", "pullPolicy": "Always"}},
        {"name": "b", "emptyDir": {}},
        {"name": "c", "image": {"reference": "models:2"}},
    ]
    return convert(Pod, {"metadata": {"name": "p"}, "spec": {"containers": [], "volumes": volumes}})


@pytest.mark.parametrize(
    ("has_volumes", "expected"),
    [
        pytest.param(True, [("models:1", "Always"), ("models:2", "")], id="with the gate"),
        pytest.param(False, [], id="without it"),
    ],
)
def test_every_image_volume_is_pulled(has_volumes, expected):
    images = Ensured()
    volumes = PodImages(images=images, has_volumes=has_volumes)
    found = asyncio.run(volumes.ensure_volumes(pod_of(), Sandbox(), turn=Turn(), parent=None))
    assert images.asked == expected
    assert sorted(found) == (["a", "c"] if has_volumes else [])


def test_a_container_gets_those_that_it_mounts_and_fails_by_those_alone():
    mounts = [{"name": "a", "mountPath": "/a"}]
    container = convert(type(make_container("x")), {"name": "x", "image": "i", "volumeMounts": mounts})
    assert volume_images(container, {"a": PRESENT, "c": MISSING}) == {"a": "ref"}
    with pytest.raises(StartError):
        volume_images(container, {"a": MISSING, "c": PRESENT})
