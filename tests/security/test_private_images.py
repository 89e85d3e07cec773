"""Private images of another tenant: an image that is on the node, used by a pod that could not have pulled it.

klet does not verify the use of present images yet, says so, and does not start where more is asked for. Pods that pull
always are safe today.
"""

import base64
import json

from klet.api.config import Secret
from klet.api.meta import ObjectMeta
from klet.testing.fake_runtime import FakeImage, Script, registry_of

IMAGE = "registry.example.com/tenant/private:1"
SCRIPT = Script(registry=registry_of(FakeImage(IMAGE, login=("tenant", "right-pass"))))


def login(name, password):
    auth = base64.b64encode(f"tenant:{password}".encode()).decode()
    data = {".dockerconfigjson": json.dumps({"auths": {"registry.example.com": {"auth": auth}}}).encode()}
    return Secret(metadata=ObjectMeta(name=name), type="kubernetes.io/dockerconfigjson", data=data)


def spec(policy, *secrets):
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": policy}
    return {"containers": [container], "imagePullSecrets": [{"name": name} for name in secrets]}


async def test_who_pulls_always_needs_a_login_although_the_image_is_there(attack):
    async with attack(script=SCRIPT, cluster=True) as target:
        for name, password in (("good", "right-pass"), ("bad", "wrong-pass")):
            await target.cluster.client.create(login(name, password), "default")
        await target.cluster.bind("owner", spec("Always", "good"))
        await target.reported("Started", about="owner")
        for name, secrets in (("stranger", ()), ("guesser", ("bad",))):
            await target.cluster.bind(name, spec("Always", *secrets))
            assert "pull access denied" in await target.reported("Failed", about=name)
        assert len(target.created()) == 1


async def test_a_login_is_tried_at_its_own_registry_alone(attack):
    """A pod cannot make the node send a login elsewhere by the name of its image."""
    async with attack(script=SCRIPT, cluster=True) as target:
        await target.cluster.client.create(login("good", "right-pass"), "default")
        names = (
            "registry.example.com.evil.example/app:1",
            "evil.example/registry.example.com/app:1",
            "registry.example.com:5000/app:1",
            "xregistry.example.com/app:1",
        )
        for number, image in enumerate(names):
            container = {"name": "main", "image": image, "imagePullPolicy": "Always"}
            wanted = {"containers": [container], "imagePullSecrets": [{"name": "good"}]}
            await target.cluster.bind(f"p{number}", wanted)
            await target.reported("Failed", about=f"p{number}")
        assert len(target.calls("PullImage")) >= len(names)
        assert not any(pull.HasField("auth") for pull in target.calls("PullImage"))


async def test_the_gap_is_said_at_start_and_stricter_policies_are_refused(attack):
    target = await attack.on()
    async with attack.run(target):
        assert "every pod of this node can run every image on it" in target.agent.log
    for policy in ("AlwaysVerify", "NeverVerifyAllowlistedImages"):
        settings = target.node.settings | {"imagePullCredentialsVerificationPolicy": policy}
        target.node.config.write_text(json.dumps(settings))
        code, said = await target.node.run_to_end(f"--config={target.node.config}")
        assert code == 1
        assert "imagePullCredentialsVerificationPolicy" in said
