import pytest

from klet.cri.errors import Code, CriError
from klet.wire import cri_v1_pb2 as pb

BUSYBOX = "klet.local/busybox:1"


def spec(name):
    return pb.ImageSpec(image=name)


async def image(bench, name):
    answer = await bench.client.image_status(pb.ImageStatusRequest(image=spec(name)))
    return answer.image if answer.HasField("image") else None


async def test_an_image_has_id_name_and_size(bench):
    found = await image(bench, BUSYBOX)
    assert found.id.startswith("sha256:")
    assert len(found.id) == len("sha256:") + 64
    assert list(found.repo_tags) == [BUSYBOX]
    assert found.size > 0


async def test_an_image_is_found_by_id_and_short_id(bench):
    found = await image(bench, BUSYBOX)
    assert await image(bench, found.id) == found
    assert await image(bench, found.id.removeprefix("sha256:")[:12]) == found


@pytest.mark.parametrize("name", ["klet.local/busybox", "klet.local/nope:1", "nope", "Not/..valid"])
async def test_an_image_that_is_not_there_has_no_status(bench, name):
    assert await image(bench, name) is None


async def test_an_empty_name_is_refused(bench):
    for call in (
        bench.client.image_status(pb.ImageStatusRequest()),
        bench.client.remove_image(pb.RemoveImageRequest()),
    ):
        with pytest.raises(CriError) as caught:
            await call
        assert caught.value.code is Code.UNKNOWN
        assert caught.value.message == 'can not resolve "" locally: ambiguous digest string'


async def test_images_are_listed_whatever_the_filter_says(bench):
    for request in (
        pb.ListImagesRequest(),
        pb.ListImagesRequest(filter=pb.ImageFilter(image=spec("klet.local/nope:1"))),
    ):
        images = (await bench.client.list_images(request)).images
        assert BUSYBOX in [tag for each in images for tag in each.repo_tags]


async def test_removing_an_unknown_image_is_no_error(bench):
    await bench.client.remove_image(pb.RemoveImageRequest(image=spec("klet.local/nope:1")))


async def test_a_bad_name_cannot_be_pulled(bench):
    with pytest.raises(CriError) as caught:
        await bench.client.pull_image(pb.PullImageRequest(image=spec("bad image")))
    message = 'failed to parse image reference "bad image": invalid reference format'
    assert (caught.value.code, caught.value.message) == (Code.UNKNOWN, message)


async def test_the_image_filesystem_is_reported(bench):
    answer = await bench.client.image_fs_info(pb.ImageFsInfoRequest())
    (usage,) = answer.image_filesystems
    assert usage.timestamp > 0
    assert usage.fs_id.mountpoint.startswith("/")
    assert usage.HasField("used_bytes")
    assert usage.HasField("inodes_used")


async def test_an_image_can_be_removed_by_name_or_id(bench):
    for by_id in (False, True):
        await bench.import_image("klet.local/passing:1")
        found = await image(bench, "klet.local/passing:1")
        await bench.client.remove_image(pb.RemoveImageRequest(image=spec(found.id if by_id else found.repo_tags[0])))
        assert await image(bench, "klet.local/passing:1") is None
        listed = (await bench.client.list_images(pb.ListImagesRequest())).images
        assert "klet.local/passing:1" not in [tag for each in listed for tag in each.repo_tags]


async def test_a_container_outlives_its_image_and_still_names_it(bench):
    await bench.import_image("klet.local/passing:1")
    found = await image(bench, "klet.local/passing:1")
    container = await bench.create(await bench.pod(), image="klet.local/passing:1")
    await bench.client.remove_image(pb.RemoveImageRequest(image=spec("klet.local/passing:1")))
    status = await bench.status(container)
    assert (status.image.image, status.image_ref) == ("klet.local/passing:1", found.id)


async def test_removing_an_image_sends_an_event(bench):
    await bench.import_image("klet.local/passing:1")
    found = await image(bench, "klet.local/passing:1")
    await bench.client.remove_image(pb.RemoveImageRequest(image=spec("klet.local/passing:1")))
    await bench.events.until("/images/delete", found.id)
    assert "/images/delete" in bench.events.topics("klet.local/passing:1")
