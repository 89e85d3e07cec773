"""Which images go, in which order, and how many: the tables of upstream's rules."""

from datetime import timedelta

import pytest

from klet.images.board import KnownImage
from klet.images.gc_plan import (
    ALL,
    DiskSpace,
    ImageFateReason,
    ImageGcPolicy,
    compute_bytes_to_free,
    plan_collection,
    plan_for_age,
    plan_for_space,
)
from klet.model.images import ImageRecord, ImageUse, ImageUseKind

NOW = 10_000.0
BEGAN = 0.0
POLICY = ImageGcPolicy()
DAY = timedelta(days=1)
USED = ImageUse(kind=ImageUseKind.CONTAINER, namespace="default", pod="web", container="main", is_running=True)
ENDED = ImageUse(kind=ImageUseKind.CONTAINER, namespace="default", pod="job", container="main")
MOUNTED = ImageUse(kind=ImageUseKind.VOLUME, namespace="default", pod="web", container="main")
STARTING = ImageUse(kind=ImageUseKind.STARTING, namespace="default", pod="new", container="main")
SANDBOX = ImageUse(kind=ImageUseKind.SANDBOX)


def known(name, *, size=30, detected=0.0, used=None, users=(), pinned=False) -> KnownImage:
    image = ImageRecord(name, size=size, pinned=pinned)
    return KnownImage(image=image, first_detected=detected, last_used=used, users=tuple(users))


def ids(images) -> list[str]:
    return [each.image.id for each in images]


def fates(plan) -> list[tuple[str, str]]:
    return [(each.known.image.id, str(each.reason)) for each in plan.images]


@pytest.mark.parametrize(
    ("space", "policy", "expected"),
    [
        pytest.param(DiskSpace(1000, 600), ImageGcPolicy(high=90), 0, id="far below the high threshold"),
        pytest.param(DiskSpace(1000, 50), ImageGcPolicy(high=90, low=80), 150, id="down to the low threshold"),
        pytest.param(DiskSpace(1000, 151), POLICY, 49, id="usage is rounded up: 84.9 % is 85 %"),
        pytest.param(DiskSpace(1000, 160), POLICY, 0, id="84 % is below"),
        pytest.param(DiskSpace(1000, 150), POLICY, 50, id="85 % exactly is enough"),
        pytest.param(DiskSpace(1000, 0), POLICY, 200, id="a full disk"),
        pytest.param(DiskSpace(1000, 0), ImageGcPolicy(high=100), 0, id="a threshold of 100 switches it off"),
        pytest.param(DiskSpace(1000, 0), ImageGcPolicy(high=100, max_age=DAY), 200, id="but not beside a maximum age"),
        pytest.param(DiskSpace(1000, 5), ImageGcPolicy(high=100, max_age=DAY), 195, id="which rounds up as well"),
        pytest.param(DiskSpace(1000, 20), ImageGcPolicy(high=100, max_age=DAY), 0, id="98 % is below 100"),
        pytest.param(DiskSpace(1000, 1000), ImageGcPolicy(high=1, low=0), 0, id="an empty disk"),
        pytest.param(DiskSpace(1 << 60, 0), POLICY, (1 << 60) * 20 // 100, id="a disk of an exbibyte"),
    ],
)
def test_how_much_has_to_be_freed(space, policy, expected):
    assert compute_bytes_to_free(space, policy) == expected


@pytest.mark.parametrize(
    ("images", "to_free", "expected"),
    [
        pytest.param([known("a"), known("b"), known("c")], 49, ["a", "b"], id="it stops when the sum is enough"),
        pytest.param([known("a"), known("b"), known("c")], 60, ["a", "b"], id="exactly enough is enough"),
        pytest.param([known("a"), known("b")], 1000, ["a", "b"], id="all of them are too little"),
        pytest.param([known("a"), known("b")], ALL, ["a", "b"], id="all of them are wanted"),
        pytest.param([known("a", used=2.0), known("b", used=1.0)], 1, ["b"], id="used longest ago first"),
        pytest.param([known("a", used=1.0), known("b")], 1, ["b"], id="never used goes before all that was used"),
        pytest.param(
            [known("a", detected=5.0), known("b", detected=4.0)], 1, ["b"], id="ties are broken by the first detection"
        ),
        pytest.param(
            [known("a", used=3.0, detected=5.0), known("b", used=3.0, detected=4.0)], 1, ["b"], id="also of used ones"
        ),
        pytest.param([known("b"), known("a")], 1, ["a"], id="then by the id, in whatever order the runtime lists"),
        pytest.param([known("a", users=[USED]), known("b")], ALL, ["b"], id="an image of a running container stays"),
        pytest.param([known("a", users=[ENDED])], ALL, [], id="an image of an ended container that is there stays"),
        pytest.param([known("a", users=[MOUNTED])], ALL, [], id="an image volume stays"),
        pytest.param([known("a", users=[SANDBOX])], ALL, [], id="the image of sandboxes stays"),
        pytest.param([known("a", users=[STARTING])], ALL, [], id="an image that a pod is about to use stays"),
        pytest.param([known("a", pinned=True), known("b")], ALL, ["b"], id="a pinned image stays"),
        pytest.param([known("a", detected=NOW - 119), known("b")], ALL, ["b"], id="younger than the minimum age stays"),
        pytest.param([known("a", detected=NOW - 120)], ALL, ["a"], id="as old as the minimum age goes"),
        pytest.param([known("a"), known("b")], 0, [], id="nothing is wanted"),
        pytest.param([], ALL, [], id="nothing is there"),
    ],
)
def test_what_goes_for_space(images, to_free, expected):
    plan = plan_for_space(images, POLICY, now=NOW, to_free=to_free)
    assert ids(plan.chosen) == expected
    assert plan.freed == 30 * len(expected)


def test_what_comes_after_the_chosen_is_spare_in_the_same_order():
    images = [known("a", used=3.0), known("b", used=1.0), known("c", used=2.0), known("d", users=[USED])]
    plan = plan_for_space(images, POLICY, now=NOW, to_free=30)
    assert (ids(plan.chosen), ids(plan.spare)) == (["b"], ["c", "a"])


AGE = ImageGcPolicy(max_age=timedelta(seconds=600))


@pytest.mark.parametrize(
    ("images", "began", "expected"),
    [
        pytest.param([known("a", used=NOW - 601), known("b", used=NOW - 600)], BEGAN, ["a"], id="older than the age"),
        pytest.param([known("a")], BEGAN, ["a"], id="an image never seen in use counts as old"),
        pytest.param(
            [known("a", detected=NOW - 60)], BEGAN, [], id="but not below the minimum age: it was just pulled"
        ),
        pytest.param([known("a")], NOW - 600, [], id="the agent has not run for that long"),
        pytest.param([known("a")], NOW - 601, ["a"], id="the agent has run for just longer"),
        pytest.param([known("a", users=[ENDED], used=NOW)], BEGAN, [], id="in use"),
        pytest.param([known("a", pinned=True)], BEGAN, [], id="pinned"),
        pytest.param([known("a", used=NOW - 700), known("b", used=NOW - 800)], BEGAN, ["b", "a"], id="in order"),
    ],
)
def test_what_goes_for_its_age(images, began, expected):
    assert ids(plan_for_age(images, AGE, now=NOW, began=began)) == expected


def test_without_a_maximum_age_nothing_goes_for_it():
    assert plan_for_age([known("a")], POLICY, now=NOW, began=BEGAN) == ()


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param(POLICY, True, id="the default"),
        pytest.param(ImageGcPolicy(high=100), False, id="100 percent and no age"),
        pytest.param(ImageGcPolicy(high=100, max_age=DAY), True, id="100 percent and an age"),
    ],
)
def test_whether_there_is_anything_to_do_now_and_then(policy, expected):
    assert policy.is_periodic is expected


def test_a_whole_collection_names_the_fate_of_each_image_and_why():
    images = [
        known("used", users=[USED]),
        known("starting", users=[STARTING]),
        known("both", users=[STARTING, ENDED]),
        known("pinned", pinned=True),
        known("young", detected=NOW - 1),
        known("spare", used=9.0),
        known("second", used=8.0),
        known("first"),
    ]
    plan = plan_collection(images, POLICY, DiskSpace(1000, 151), now=NOW, began=BEGAN)
    assert fates(plan) == [
        ("first", "space"),
        ("second", "space"),
        ("used", "inUse"),
        ("starting", "starting"),
        ("both", "inUse"),
        ("pinned", "pinned"),
        ("young", "tooYoung"),
        ("spare", "enoughFreed"),
    ]
    assert (plan.to_free, plan.freed) == (49, 60)


def test_below_the_threshold_every_image_stays():
    plan = plan_collection([known("a"), known("b", pinned=True)], POLICY, DiskSpace(1000, 500), now=NOW, began=BEGAN)
    assert fates(plan) == [("a", "belowThreshold"), ("b", "pinned")]
    assert (plan.to_free, plan.freed) == (0, 0)


def test_what_goes_for_its_age_is_counted_before_the_space():
    images = [known("old", size=40), known("other", size=40, used=NOW - 300)]
    plan = plan_collection(images, AGE, DiskSpace(1000, 120), now=NOW, began=BEGAN)
    assert fates(plan) == [("old", "age"), ("other", "belowThreshold")]
    full = plan_collection(images, AGE, DiskSpace(1000, 100), now=NOW, began=BEGAN)
    assert fates(full) == [("old", "age"), ("other", "space")]
    assert (full.to_free, full.freed) == (60, 80)


def test_the_preview_is_the_plan_that_is_carried_out():
    images = [known(f"i{number}", size=number + 1, used=float(number * 7 % 11)) for number in range(40)]
    space = DiskSpace(1000, 37)
    plan = plan_collection(images, POLICY, space, now=NOW, began=BEGAN)
    to_free = compute_bytes_to_free(space, POLICY)
    chosen = plan_for_space(images, POLICY, now=NOW, to_free=to_free).chosen
    assert [each.known for each in plan.images if each.reason is ImageFateReason.SPACE] == list(chosen)
    assert plan.to_free == to_free
    assert sum(each.image.size for each in chosen[:-1]) < to_free <= plan.freed


def test_a_filesystem_never_grows_beyond_its_capacity():
    assert DiskSpace(100, 90).grown(50) == DiskSpace(100, 100)
    assert DiskSpace(0, 0).used_percent == 100
