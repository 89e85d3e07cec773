"""Image garbage collection on the fake runtime: what goes, what stays, and what is recorded, in virtual time."""

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta

import pytest

from klet.api.codec import decode
from klet.api.klet_v1 import encode
from klet.api.klet_v1_images import ImageGcPreview
from klet.cri.errors import Code
from klet.errors import KletError
from klet.images.gc import PERIOD, ImageGcFailed
from klet.images.gc_plan import ImageGcPolicy
from klet.model.images import ImageUse, ImageUseKind
from klet.model.runtime import ContainerId
from klet.testing.fake_runtime import FakeImage, Fault, Script
from klet.testing.fake_runtime.faults import DelayCall, Fail
from klet.testing.fake_runtime.lives import always, runs_for
from klet.testing.fake_runtime.world import Features

MIB = 1 << 20
STARTING = ImageUse(kind=ImageUseKind.STARTING, namespace="default", pod="new", uid="u-9", container="main")
FULL = (
    "Insufficient free disk space on the node's image filesystem (95% of 1000.0 MiB used). Failed to free sufficient "
    "space by deleting unused images (freed {} bytes). Investigate disk usage, as it could be used by active images, "
    "logs, volumes, or other data."
)


def image(name: str, *, size: int = 100, pinned: bool = False) -> FakeImage:
    """Return an image of so many MiB; ids are in the order of names."""
    id_ = f"sha256:{name.encode().hex():0<64}"
    return FakeImage(name=f"registry.test/{name}:1", size=size * MIB, pinned=pinned, id=id_)


EARLIER = datetime(2029, 12, 31, tzinfo=UTC)
A, B, C = image("a"), image("b"), image("c")


def test_it_frees_down_to_the_low_threshold_and_stops(on_image_bench):
    async def test(bench) -> None:
        bench.disk.other = 600 * MIB  # 90 % used; 80 % are reached with the first
        await bench.grow_old()
        await bench.gc.collect()
        assert bench.left() == ["b", "c"]
        assert bench.disk.used == 800 * MIB
        await bench.gc.collect()
        assert bench.left() == ["b", "c"]
        [removed] = bench.findings("ImageCollected")
        assert removed.message == "Removed image registry.test/a:1 (100.0 MiB) to free disk space"
        assert removed.measurements["unusedSeconds"] == 600
        assert 'kubelet_image_garbage_collected_total{reason="space"} 1' in bench.metrics()

    on_image_bench(test, A, B, C)


def test_below_the_high_threshold_nothing_goes(on_image_bench):
    async def test(bench) -> None:
        bench.disk.other = 530 * MIB
        await bench.grow_old()
        await bench.gc.collect()
        assert bench.left() == ["a", "b", "c"]
        bench.disk.other = 541 * MIB
        await bench.gc.collect()
        assert len(bench.left()) == 2

    on_image_bench(test, A, B, C)


def test_images_that_take_more_than_their_size_are_fewer_to_remove(on_image_bench):
    async def test(bench) -> None:
        bench.disk.share, bench.disk.other = 3.0, 0  # 900 MiB: one image more and it is 600
        await bench.grow_old()
        preview = await bench.views.preview()
        assert preview.bytes_to_free == 100 * MIB
        await bench.gc.collect()
        assert bench.left() == ["b", "c"]

    on_image_bench(test, A, B, C)


def test_it_never_removes_more_than_the_sizes_of_images_ask_for(on_image_bench):
    async def test(bench) -> None:
        bench.disk.share, bench.disk.other = 0.1, 870 * MIB  # shared layers: removing one frees 10 MiB
        await bench.grow_old()
        await bench.gc.collect()
        assert bench.left() == ["b", "c"]
        assert bench.findings("FreeDiskSpaceFailed") == []

    on_image_bench(test, A, B, C)


def test_what_is_in_use_pinned_young_or_about_to_be_used_stays(on_image_bench):
    names = ("running", "ended", "mounted", "starting", "unused")
    images = {name: image(name, size=10) for name in names}

    async def test(bench) -> None:
        bench.disk.other = 950 * MIB
        await bench.run_container(images["running"].image_id, mounts=(images["mounted"].image_id,))
        ended = await bench.run_container(images["ended"].image_id, name="ended")
        bench.runtime.end_container(ended, 0)
        await bench.grow_old()
        bench.runtime.load_image(image("young", size=10))
        bench.holds.hold(images["starting"].image_id, STARTING, since=bench.clock.now(), at=bench.clock.monotonic())
        await bench.watcher.look()
        await bench.clock.sleep(timedelta(seconds=119))
        with pytest.raises(ImageGcFailed):
            await bench.gc.collect()
        assert bench.left() == ["ended", "mounted", "pause", "pinned", "running", "starting", "young"]

    pause = FakeImage(name=Features().sandbox_image, size=1)
    on_image_bench(test, *images.values(), image("pinned", size=10, pinned=True), pause)


def test_an_image_goes_once_its_last_container_is_removed_and_those_unused_longest_go_first(on_image_bench):
    async def test(bench) -> None:
        bench.disk.other = 650 * MIB
        container = await bench.run_container(A.image_id)
        await bench.grow_old()
        await bench.watcher.look()
        bench.runtime.end_container(container, 0)
        await bench.client.remove_container(bench.remove_request(container))
        await bench.gc.collect()
        assert bench.left() == ["a"]
        bench.disk.other = 800 * MIB
        await bench.gc.collect()
        assert bench.left() == []

    on_image_bench(test, A, B, C)


def test_when_nothing_can_be_freed_it_says_what_holds_the_disk(on_image_bench):
    async def test(bench) -> None:
        bench.disk.other = 650 * MIB
        container = await bench.run_container(image("big", size=200).image_id)
        bench.disk.layers = {ContainerId(container): 300 * MIB, ContainerId("unknown"): 1 << 40}
        await bench.grow_old()
        with pytest.raises(ImageGcFailed) as failure:
            await bench.gc.collect()
        assert str(failure.value) == FULL.format(0)
        [found] = bench.findings("FreeDiskSpaceFailed")
        assert found.message == FULL.format(0)
        assert found.measurements == {
            "usedPercent": 95,
            "bytesToFree": 150 * MIB,
            "bytesFreed": 0,
            "heldBy": "writable layer of default/web/main, 300.0 MiB; image registry.test/big:1, 200.0 MiB, used by "
            "default/web/main; image registry.test/pinned:1, 100.0 MiB, pinned",
        }

    on_image_bench(test, image("big", size=200), image("pinned", pinned=True))


def test_what_could_be_freed_is_freed_even_if_it_is_too_little(on_image_bench):
    async def test(bench) -> None:
        bench.disk.other = 850 * MIB
        await bench.grow_old()
        with pytest.raises(ImageGcFailed):
            await bench.gc.collect()
        assert bench.left() == []
        [found] = bench.findings("FreeDiskSpaceFailed")
        assert found.message == FULL.format(100 * MIB)
        assert bench.records.written == {}

    on_image_bench(test, A)


def test_the_first_failure_is_logged_and_only_those_after_it_are_events(on_image_bench):
    async def test(bench) -> None:
        bench.disk.error = KletError("imageFs information is unavailable")
        async with asyncio.TaskGroup() as group:
            loop = group.create_task(bench.gc.run())
            await bench.clock.sleep(PERIOD / 2)
            assert bench.findings("ImageGCFailed") == []
            await bench.clock.sleep(PERIOD)
            assert [each.message for each in bench.findings("ImageGCFailed")] == ["imageFs information is unavailable"]
            await bench.clock.sleep(PERIOD)
            assert len(bench.findings("ImageGCFailed")) == 2
            bench.disk.error = None
            await bench.clock.sleep(PERIOD)
            bench.disk.error = KletError("again")
            await bench.clock.sleep(PERIOD)
            assert len(bench.findings("ImageGCFailed")) == 2
            loop.cancel()

    on_image_bench(test, A)


def test_it_runs_at_once_and_every_five_minutes(on_image_bench):
    async def test(bench) -> None:
        async with asyncio.TaskGroup() as group:
            loop = group.create_task(bench.gc.run())
            await bench.clock.sleep(PERIOD * 3.5)
            loop.cancel()
        assert bench.disk.reads == 4

    on_image_bench(test)


def test_a_filesystem_without_a_capacity_is_an_event(on_image_bench):
    async def test(bench) -> None:
        bench.disk.capacity = 0
        with pytest.raises(ImageGcFailed, match="invalid capacity 0 on image filesystem"):
            await bench.gc.collect()
        [found] = bench.findings("InvalidDiskCapacity")
        assert found.message == "invalid capacity 0 on image filesystem"

    on_image_bench(test, A)


def test_an_image_that_cannot_be_removed_is_replaced_by_the_next(on_image_bench):
    async def test(bench) -> None:
        bench.disk.other = 600 * MIB
        await bench.grow_old()
        bench.records.written = dict.fromkeys([A.image_id, B.image_id], EARLIER)
        bench.runtime.faults.add(Fault("RemoveImage", Fail(Code.UNKNOWN, "broken")))
        with pytest.raises(ImageGcFailed) as failure:
            await bench.gc.collect()
        assert str(failure.value) == (
            f"wanted to free {100 * MIB} bytes, but freed {100 * MIB} bytes space with errors in image deletion: "
            "rpc error: code = Unknown desc = broken"
        )
        assert bench.left() == ["a", "c"]
        assert bench.records.written.keys() == {A.image_id, B.image_id}, "after an error no record goes"
        await bench.clock.sleep(timedelta(seconds=2))
        await bench.gc.collect()
        assert bench.records.written.keys() == {A.image_id}
        assert bench.forgotten == [B.image_id]

    on_image_bench(test, A, B, C)


def test_records_of_images_that_others_removed_are_dropped(on_image_bench):
    async def test(bench) -> None:
        bench.records.written = dict.fromkeys([A.image_id, "gone"], EARLIER)
        await bench.grow_old()
        bench.records.written["pulled meanwhile"] = bench.clock.now() + timedelta(hours=1)
        await bench.gc.collect()
        assert bench.records.written.keys() == {A.image_id, "pulled meanwhile"}

    on_image_bench(test, A)


def test_a_runtime_that_lists_nothing_costs_no_record(on_image_bench):
    async def test(bench) -> None:
        bench.records.written = {A.image_id: bench.clock.now()}
        await bench.grow_old()
        await bench.gc.collect()
        assert bench.records.written.keys() == {A.image_id}

    on_image_bench(test)


def test_images_go_for_their_age_only_when_the_agent_has_run_for_that_long(on_image_bench):
    async def test(bench) -> None:
        bench.start_agent(ImageGcPolicy(high=100, max_age=timedelta(hours=1)))
        await bench.run_container(B.image_id)
        await bench.grow_old(minutes=60)
        await bench.gc.collect()
        assert bench.left() == ["a", "b"]
        await bench.clock.sleep(timedelta(seconds=1))
        await bench.gc.collect()
        assert bench.left() == ["b"]
        assert 'kubelet_image_garbage_collected_total{reason="age"} 1' in bench.metrics()
        [removed] = bench.findings("ImageCollected")
        assert removed.message == "Removed image registry.test/a:1 (100.0 MiB) because it has not been used for long"

    on_image_bench(test, A, B)


def test_an_error_while_old_images_go_is_upstreams_and_nothing_else_follows(on_image_bench):
    async def test(bench) -> None:
        bench.start_agent(ImageGcPolicy(max_age=timedelta(hours=1)))
        await bench.grow_old(minutes=61)
        bench.runtime.faults.add(Fault("RemoveImage", Fail(Code.UNKNOWN, "broken"), count=None))
        with pytest.raises(ImageGcFailed) as failure:
            await bench.gc.collect()
        assert str(failure.value) == (
            "wanted to free images older than 1h0m0s, encountered errors in image deletion: "
            "rpc error: code = Unknown desc = broken"
        )
        assert bench.disk.reads == 0

    on_image_bench(test, A, B)


def test_to_save_pods_everything_unused_goes(on_image_bench):
    async def test(bench) -> None:
        bench.start_agent(ImageGcPolicy(high=100))
        await bench.run_container(B.image_id)
        await bench.grow_old()
        await bench.gc.delete_unused()
        assert bench.left() == ["b"]

    on_image_bench(test, A, B, C)


def test_an_image_that_a_pod_asks_for_while_others_are_removed_stays(on_image_bench):
    async def test(bench) -> None:
        bench.disk.other = 950 * MIB
        await bench.grow_old()
        bench.runtime.faults.add(Fault("RemoveImage", DelayCall(timedelta(seconds=5))))
        async with asyncio.TaskGroup() as group:
            collection = group.create_task(_try(bench.gc.collect()))
            await bench.clock.sleep(timedelta(seconds=1))
            now, at = bench.clock.now(), bench.clock.monotonic()
            assert bench.holds.hold(B.image_id, STARTING, since=now, at=at), "only a is being removed"
            assert not bench.holds.hold(A.image_id, STARTING, since=now, at=at)
            await collection
        assert bench.left() == ["b"]

    on_image_bench(test, image("a", size=10), B)


async def _try(collection) -> None:
    with contextlib.suppress(ImageGcFailed):
        await collection


def test_the_preview_is_what_the_collection_does_then(on_image_bench):
    images = [image(f"i{number}", size=10 + number) for number in range(20)]

    async def test(bench) -> None:
        bench.disk.other = 500 * MIB
        used = await bench.run_container(images[3].image_id)
        assert used
        await bench.grow_old()
        preview = await bench.views.preview()
        assert decode(ImageGcPreview, encode(preview)) == preview
        goes = [fate.image.id for fate in preview.fates if fate.removed]
        assert bench.removals() == 0
        await bench.gc.collect()
        asked = [call.request.image.image for call in bench.runtime.calls if call.rpc == "RemoveImage"]
        assert asked == goes
        assert 0 < len(goes) < 19
        assert preview.bytes_freed >= preview.bytes_to_free > 0

    on_image_bench(test, *images)


def test_the_preview_says_why(on_image_bench):
    async def test(bench) -> None:
        bench.disk.other = 630 * MIB
        await bench.run_container(C.image_id)
        await bench.grow_old()
        bench.disk.layers = {ContainerId(bench.runtime.containers()[0].id): 50 * MIB}
        preview = await bench.views.preview()
        assert (
            preview.summary == "93% of 1000.0 MiB is used, and 130.0 MiB too much for 80%; 2 images would go and "
            "free 200.0 MiB"
        )
        unused = "removed to free disk space: not used for 0:10:00, which is as long as the agent knows it"
        assert [(fate.image.tags[0], fate.removed, fate.reason, fate.message) for fate in preview.fates] == [
            (A.name, True, "space", unused),
            (B.name, True, "space", unused),
            (C.name, False, "inUse", "kept: used by default/web/main"),
        ]
        assert [(each.kind, each.name, each.size_bytes) for each in preview.holders] == [
            ("image", C.name, 100 * MIB),
            ("writableLayer", "default/web/main", 50 * MIB),
        ]

    on_image_bench(test, A, B, C)


def test_images_are_listed_with_their_users_and_since_when_they_are_unused(on_image_bench):
    async def test(bench) -> None:
        container = await bench.run_container(A.image_id)
        began = bench.clock.now()
        listing = await bench.views.images()
        used = next(each for each in listing.images if each.id == A.image_id)
        [user] = used.users
        assert (user.how, user.namespace, user.pod, user.container, user.running) == (
            "container",
            "default",
            "web",
            "main",
            True,
        )
        assert (used.last_used, used.unused_since) == (began, None)
        await bench.clock.sleep(timedelta(minutes=3))
        bench.runtime.end_container(container, 0)
        await bench.client.remove_container(bench.remove_request(container))
        listing = await bench.views.images()
        used = next(each for each in listing.images if each.id == A.image_id)
        assert (used.users, used.last_used, used.unused_since) == ((), began, began)
        assert [each.size_bytes for each in listing.images] == [200 * MIB, 100 * MIB]

    on_image_bench(test, A, image("large", size=200))


def test_without_the_runtime_there_is_an_error_and_the_board_keeps_what_it_knows(on_image_bench):
    async def test(bench) -> None:
        await bench.grow_old()
        bench.runtime.faults.add(Fault("ListImages", Fail(Code.UNAVAILABLE, "down"), count=None))
        with pytest.raises(KletError, match="down"):
            await bench.views.images()
        with pytest.raises(KletError, match="down"):
            await bench.views.preview()
        with pytest.raises(KletError, match="down"):
            await bench.gc.collect()
        assert len(bench.board.images()) == 1

    on_image_bench(test, A)


def test_the_watcher_lists_every_thirty_seconds_and_looks_for_users_every_five_minutes(on_image_bench):
    async def test(bench) -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(bench.watcher.run())
            await bench.clock.sleep(timedelta(minutes=10, seconds=15))
            task.cancel()
        lists = [call.rpc for call in bench.runtime.calls]
        assert (lists.count("ListImages"), lists.count("ListContainers"), lists.count("Status")) == (21, 3, 3)

    on_image_bench(test, A)


def test_the_mounts_of_a_container_are_asked_for_once(on_image_bench):
    async def test(bench) -> None:
        await bench.run_container(A.image_id, mounts=(B.image_id,))
        for _ in range(3):
            await bench.watcher.look()
        assert [call.rpc for call in bench.runtime.calls].count("ContainerStatus") == 1
        users = {known.image.id: [use.kind for use in known.users] for known in bench.board.images()}
        assert users == {A.image_id: [ImageUseKind.CONTAINER], B.image_id: [ImageUseKind.VOLUME]}

    on_image_bench(test, A, B)


def test_a_container_that_ends_by_itself_keeps_its_image(on_image_bench):
    async def test(bench) -> None:
        bench.disk.other = 950 * MIB
        await bench.run_container(A.image_id)
        await bench.grow_old()
        with pytest.raises(ImageGcFailed):
            await bench.gc.collect()
        assert bench.left() == ["a"]

    on_image_bench(test, A, script=Script(lives=always(runs_for(timedelta(seconds=1)))))


def test_an_agent_that_is_killed_anywhere_in_a_collection_leaves_records_and_images_that_agree(on_image_bench):
    images = [image(f"i{number}", size=50) for number in range(5)]

    async def test(bench) -> None:
        """Kill it after so many steps of the loop; then a new agent collects to the end."""
        bench.disk.other = 700 * MIB  # 95 %: three images go
        await bench.run_container(images[4].image_id)
        bench.records.written = {each.image_id: bench.clock.now() for each in images}
        await bench.grow_old()
        loop = asyncio.get_running_loop()
        collection = loop.create_task(bench.gc.collect())
        loop.after_steps(bench.steps, collection.cancel)
        await asyncio.wait([collection])
        loop.no_alarm()
        bench.was_killed = collection.cancelled()
        left = {each.image.image_id for each in bench.runtime.stored_images()}
        assert left <= bench.records.written.keys(), "an image without its record would be anybody's"
        bench.start_agent()
        await bench.grow_old()
        await bench.gc.collect()
        left = {each.image.image_id for each in bench.runtime.stored_images()}
        assert bench.records.written.keys() == left
        assert images[4].image_id in left
        assert len(left) == 2
        bench.note()

    killed = []
    for steps in range(1, 400):
        outcome = {}

        async def story(bench, *, steps=steps, outcome=outcome) -> None:
            bench.steps, bench.note = steps, lambda: outcome.update(killed=bench.was_killed)
            await test(bench)

        on_image_bench(story, *images)
        if not outcome["killed"]:
            break
        killed.append(steps)
    assert len(killed) > 20
