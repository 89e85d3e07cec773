"""What holds the disk, and how it is named."""

import pytest

from klet.images.board import KnownImage
from klet.images.disk_holders import MOST, HeldSpace, find_holders, format_size, name_user
from klet.model.images import ImageRecord, ImageUse, ImageUseKind
from klet.model.runtime import ContainerId


def use(pod="web", container="main", *, kind=ImageUseKind.CONTAINER, id_="c-1") -> ImageUse:
    return ImageUse(kind=kind, namespace="default", pod=pod, container=container, container_id=id_)


def known(name, size, *users, pinned=False) -> KnownImage:
    return KnownImage(image=ImageRecord(name, size=size, pinned=pinned), first_detected=0.0, users=users)


def test_the_largest_come_first_and_unused_images_do_not_count():
    images = [known("small", 1, use()), known("unused", 99), known("pinned", 5, pinned=True)]
    found = find_holders(images, {ContainerId("c-1"): 3, ContainerId("other"): 50})
    assert [(each.name, each.size, each.is_layer) for each in found] == [
        ("pinned", 5, False),
        ("default/web/main", 3, True),
        ("small", 1, False),
    ]


def test_few_are_named_and_nothing_of_no_size():
    images = [known(f"i{number}", number, use()) for number in range(20)]
    assert [each.size for each in find_holders(images, {})] == [19, 18, 17, 16, 15][:MOST]
    assert find_holders([known("empty", 0, use())], {}) == ()


def test_a_layer_counts_once_even_if_its_container_mounts_more_images():
    images = [known("a", 2, use()), known("b", 1, use(kind=ImageUseKind.VOLUME))]
    assert sum(each.is_layer for each in find_holders(images, {ContainerId("c-1"): 9})) == 1


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        pytest.param(HeldSpace(name="a", size=1, users=(use(),)), "image a, 1 B, used by default/web/main", id="one"),
        pytest.param(
            HeldSpace(name="a", size=2048, users=tuple(use(f"p{number}") for number in range(5))),
            "image a, 2.0 KiB, used by default/p0/main, default/p1/main, default/p2/main and 2 more",
            id="many",
        ),
        pytest.param(HeldSpace(name="a", size=1, users=(use(), use())), "image a, 1 B, used by default/web/main",
                     id="the same twice"),
        pytest.param(HeldSpace(name="a", size=1, is_pinned=True), "image a, 1 B, pinned", id="pinned"),
        pytest.param(HeldSpace(name="default/web/main", size=1 << 20, is_layer=True),
                     "writable layer of default/web/main, 1.0 MiB", id="a layer"),
        pytest.param(HeldSpace(name="x" * 1000, size=1, is_pinned=True), f"image {'x' * 157}…, 1 B, pinned", id="long"),
    ],
)  # fmt: skip
def test_how_it_is_described(held, expected):
    assert held.describe() == expected


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        (use(), "default/web/main"),
        (use(kind=ImageUseKind.VOLUME), "default/web/main"),
        (use(kind=ImageUseKind.STARTING), "default/web, which is about to start"),
        (ImageUse(kind=ImageUseKind.SANDBOX), "the sandboxes of pods"),
        (ImageUse(kind=ImageUseKind.CONTAINER, container_id="c-9"), "container c-9, which is of no pod"),
    ],
)
def test_how_a_user_is_named(user, expected):
    assert name_user(user) == expected


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (10 << 30, "10.0 GiB"), (3 << 39, "1.5 TiB")],
)
def test_sizes_are_written_as_upstream_does(size, expected):
    assert format_size(size) == expected
