"""Private images of another tenant: an image that is on the node, used by a pod that could not have pulled it."""

import base64
import json
import os
from contextlib import AsyncExitStack

import pytest

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


@pytest.mark.parametrize("restarted", [False, True])
async def test_an_image_that_one_tenant_pulled_is_nobody_elses(attack, restarted):
    """By default, without a pull: whoever cannot show credentials must pull, and is refused."""
    async with AsyncExitStack() as stack:
        target = await attack.on(script=SCRIPT, cluster=True)
        agent = await stack.enter_async_context(AsyncExitStack())
        await agent.enter_async_context(attack.run(target))
        for name, password in (("good", "right-pass"), ("bad", "wrong-pass"), ("same", "right-pass")):
            await target.cluster.client.create(login(name, password), "default")
        await target.cluster.bind("owner", spec("IfNotPresent", "good"))
        await target.reported("Started", about="owner")
        if restarted:
            await agent.aclose()
            await agent.enter_async_context(attack.run(target))
        for name, secrets in (("stranger", ()), ("guesser", ("bad",))):
            await target.cluster.bind(name, spec("IfNotPresent", *secrets))
            assert "pull access denied" in await target.reported("Failed", about=name)
        await target.cluster.bind("never", spec("Never"))
        assert "is not present with pull policy of Never" in await target.reported("ErrImageNeverPull", about="never")
        pulls = len(target.calls("PullImage"))
        await target.cluster.bind("friend", spec("IfNotPresent", "same"))
        assert "can be accessed by the pod" in await target.reported("Pulled", about="friend")
        await target.reported("Started", about="friend")
        assert len(target.created()) == 2
        assert all(pull.auth.password != "right-pass" for pull in target.calls("PullImage")[pulls:])


@pytest.mark.parametrize(("policy", "is_refused"), [("AlwaysVerify", True), ("NeverVerify", False)])
async def test_what_was_loaded_is_for_those_that_the_policy_names(attack, policy, is_refused):
    image = FakeImage(IMAGE, login=("tenant", "right-pass"))
    target = await attack.on(script=SCRIPT, cluster=True, images=(image,))
    async with attack.run(target, imagePullCredentialsVerificationPolicy=policy):
        await target.cluster.bind("stranger", spec("IfNotPresent"))
        await target.reported("Failed" if is_refused else "Started", about="stranger")
        assert bool(target.created()) is not is_refused


async def test_files_in_the_place_of_records_stop_no_agent_and_open_no_image(attack):
    """Whoever can write there is root; but a torn or strange file must never let a stranger in."""
    target = await attack.on(script=SCRIPT, cluster=True)
    await target.cluster.client.create(login("good", "right-pass"), "default")
    async with attack.run(target):
        await target.cluster.bind("owner", spec("IfNotPresent", "good"))
        await target.reported("Started", about="owner")
    (record,) = (target.node.root / "image_manager/pulled").iterdir()
    record.write_bytes(record.read_bytes()[:40])
    os.mkfifo(record.with_name("sha256-" + "0" * 64))
    record.with_name("sha256-" + "1" * 64).symlink_to("/etc/shadow")
    (target.node.root / "image_manager/pulling" / f"sha256-{'2' * 64}").write_bytes(b"[" * 100_000)
    async with attack.run(target):
        await target.cluster.bind("stranger", spec("IfNotPresent"))
        assert "pull access denied" in await target.reported("Failed", about="stranger")
    assert len(target.created()) == 1
