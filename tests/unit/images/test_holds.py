"""Images that pods are about to use."""

import asyncio
from datetime import timedelta

from klet.images.holds import LONGEST, ContainerUse, ImageHolds
from klet.model.images import ImageUse, ImageUseKind
from klet.model.pods import PodUID
from klet.testing.builders import NOW

SECOND = timedelta(seconds=1)


def starting(uid="u-1", container="main") -> ImageUse:
    return ImageUse(kind=ImageUseKind.STARTING, pod="web", uid=uid, container=container)


def made(image="i", *, uid="u-1", container="main", at=NOW) -> ContainerUse:
    use = ImageUse(kind=ImageUseKind.CONTAINER, uid=uid, container=container)
    return ContainerUse(image, use, at)


def holds_after(*containers: ContainerUse, container="main", at=1.0) -> list[str]:
    holds = ImageHolds()
    assert holds.hold("i", starting(container=container), since=NOW, at=0.0)
    holds.settle(containers, at=at)
    return list(holds.uses())


def test_an_image_is_held_until_its_container_is_there():
    assert holds_after() == ["i"]
    assert holds_after(made(at=NOW + SECOND)) == []
    assert holds_after(made(at=NOW)) == []


def test_other_containers_do_not_release_it():
    assert holds_after(made(at=NOW - SECOND)) == ["i"], "an earlier instance"
    assert holds_after(made("j")) == ["i"], "another image"
    assert holds_after(made(uid="u-2")) == ["i"], "another pod"
    assert holds_after(made(container="side")) == ["i"], "another container of the pod"


def test_any_container_of_the_pod_releases_the_image_of_a_volume():
    assert holds_after(made(container="side"), container="") == []


def test_a_pod_that_does_not_ask_again_loses_it_in_the_end():
    assert holds_after(at=LONGEST.total_seconds() - 1) == ["i"]
    assert holds_after(at=LONGEST.total_seconds()) == []


def test_a_pod_that_is_gone_holds_nothing():
    holds = ImageHolds()
    assert holds.hold("i", starting("u-1"), since=NOW, at=0.0)
    assert holds.hold("i", starting("u-2"), since=NOW, at=0.0)
    assert holds.pods() == {"u-1", "u-2"}
    holds.forget(PodUID("u-1"))
    assert holds.pods() == {"u-2"}
    assert holds.uses() == {"i": (starting("u-2"),)}


def test_an_image_that_is_held_is_not_removed():
    holds = ImageHolds()
    assert holds.hold("i", starting(), since=NOW, at=0.0)
    with holds.removing("i") as is_free:
        assert not is_free
    with holds.removing("j") as is_free:
        assert is_free
        with holds.removing("j") as again:
            assert not again


def test_an_image_that_is_being_removed_is_not_held():
    holds = ImageHolds()
    with holds.removing("i") as is_free:
        assert is_free
        assert not holds.hold("i", starting(), since=NOW, at=0.0)
        assert holds.hold("j", starting(), since=NOW, at=0.0)
    assert holds.hold("i", starting(), since=NOW, at=0.0)


def test_who_looks_at_an_image_learns_that_it_was_removed_meanwhile():
    holds = ImageHolds()
    with holds.watch() as outer:
        with holds.watch() as inner, holds.removing("i"):
            pass
        with holds.removing("j"):
            pass
    with holds.removing("k"):
        pass
    assert (outer, inner) == ({"i", "j"}, {"i"})


async def test_who_needs_the_image_waits_for_the_end_of_its_removal():
    holds = ImageHolds()
    order = []

    async def wait() -> None:
        await holds.until_removed("i")
        order.append("waited")

    async with asyncio.TaskGroup() as group:
        with holds.removing("i"):
            group.create_task(wait())
            await asyncio.sleep(0)
            order.append("removed")
    await holds.until_removed("i")
    assert order == ["removed", "waited"]


def test_a_removal_that_fails_ends_as_well():
    holds = ImageHolds()
    try:
        with holds.removing("i"):
            raise OSError
    except OSError:
        pass
    assert holds.hold("i", starting(), since=NOW, at=0.0)
