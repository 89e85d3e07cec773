"""runAsNonRoot: every way in which pod, container and image name a user, at the first start and at a restart."""

from itertools import product

from klet.testing.fake_runtime import FakeImage

REFUSED = "CreateContainerConfigError"
PREFIX = "registry.example.com/team"
USERS = {"nobody": "", "root": "0", "rootname": "root", "number": "1000", "name": "app", "huge": "4294967295"}
IMAGES = {name: FakeImage(name=f"{PREFIX}/{name}:1", user=user) for name, user in USERS.items()}
UIDS = (None, 0, 1000)


def is_safe(own, shared, image):
    uid = own if own is not None else shared
    return uid > 0 if uid is not None else image == "number"


def context(uid, *, asks):
    fields = {"runAsUser": uid} if uid is not None else {}
    return fields | ({"runAsNonRoot": True} if asks else {})


async def test_who_asks_not_to_be_root_is_not(attack, pod):
    """The container or the pod asks for it; either names a user, or the image does."""
    cases = list(product(UIDS, UIDS, IMAGES, (True, False)))
    async with attack(images=tuple(IMAGES.values())) as target:
        for number, (own, shared, image, asks_itself) in enumerate(cases):
            name = f"p{number}"
            main = {
                "image": IMAGES[image].name,
                "imagePullPolicy": "Never",
                "securityContext": context(own, asks=asks_itself),
            }
            spec = {"securityContext": context(shared, asks=not asks_itself)}
            target.node.write(name, pod(name, **{name: main}, spec=spec))
        for number, (own, shared, image, _) in enumerate(cases):
            name = f"p{number}"
            if is_safe(own, shared, image):
                await target.agent.recorded(name, "Started")
            else:
                await target.waiting(name, name, reason=REFUSED)
        started = {each.metadata.name for each in target.created()}
        assert started == {f"p{number}" for number, case in enumerate(cases) if is_safe(*case[:3])}
        assert all(each.linux.security_context.run_as_user.value == 1000 for each in target.created())


async def test_what_was_checked_is_what_starts(attack, pod):
    """A tag may move to another image between the check and the start: the image is named by its id."""
    number = IMAGES["number"]
    async with attack(images=(number,)) as target:
        fields = {"image": number.name, "imagePullPolicy": "Never", "securityContext": {"runAsNonRoot": True}}
        await target.start(pod("web", main=fields))
        [config] = target.created()
        assert config.image.image == number.image_id
        assert config.linux.security_context.run_as_user.value == 1000
