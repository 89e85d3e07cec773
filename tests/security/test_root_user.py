"""Root instead of the image's user (CVE-2019-11245): after a restart, with an image that is present, after adoption."""

from klet.testing.fake_runtime import FakeImage, Script, registry_of

NUMBERED = FakeImage(name="registry.example.com/team/numbered:1", user="1000")
NAMED = FakeImage(name="registry.example.com/team/named:1", user="app")
IMAGES = {"numbered": NUMBERED, "named": NAMED}


def manifest(pod, name, **fields):
    return pod(name, **{key: {"image": image.name, **fields} for key, image in IMAGES.items()})


def users(target):
    """Who each container was to run as, in order."""
    made = [(config.metadata.name, config.linux.security_context) for config in target.created()]
    return [
        (name, context.run_as_user.value if context.HasField("run_as_user") else context.run_as_username)
        for name, context in made
    ]


async def restart(target, name):
    """Both containers of a pod end, and start again."""
    for each in target.runtime.containers():
        if each.sandbox.config.metadata.name == f"{name}-node" and each.is_running:
            target.runtime.end_container(each.id, 1)

    def has_restarted(pods):
        return [each.restart_count for each in pods[name].status.container_statuses if each.state.running] == [1, 1]

    await target.agent.until(has_restarted, what=f"{name}: a restart")


async def test_the_user_of_the_image_stays_whatever_happens(attack, pod):
    """First with images that are pulled, then that are there, then in the hands of the next agent."""
    target = await attack.on(script=Script(registry=registry_of(*IMAGES.values())))
    # The first restart of a container comes without a delay.
    async with attack.run(target):
        await target.start(manifest(pod, "web"))
        await restart(target, "web")
        await target.start(manifest(pod, "cached", imagePullPolicy="Never"))
    async with attack.run(target):
        await target.start(manifest(pod, "later"))
        await restart(target, "cached")
    found = users(target)
    assert len(found) == 10
    assert set(found) == {("numbered", 1000), ("named", "app")}
