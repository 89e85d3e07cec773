"""Parts of volumes, bound where containers cannot tamper with them."""

import os
import stat
from pathlib import Path

import pytest

from klet.aio.threads import Threads
from klet.host import mounts
from klet.host.mounts import Propagation
from klet.model.pods import PodUID
from klet.runtime.config.sub_paths import BoundSubPaths, SubPathError
from klet.testing.races.swapper import swapping

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("root"), pytest.mark.real_machine]

UID = PodUID("uid-1")


@pytest.fixture
def base(tmp_path: Path):
    """A private tmpfs, so that nothing a test mounts can reach the rest of the machine or stay behind."""
    place = tmp_path / "base"
    place.mkdir()
    mounts.mount("klet-test", place, fs_type="tmpfs", options=["size=1m"])
    mounts.set_propagation(place, Propagation.PRIVATE)
    yield place
    mounts.unmount_tree(place)


@pytest.fixture
def volume(base):
    root = base / "volume"
    root.mkdir()
    root.chmod(0o2770)
    return root


@pytest.fixture
def sub_paths(base):
    threads = Threads(limit=1)
    yield BoundSubPaths(root=base / "kubelet", threads=threads)
    threads.close()


async def prepare(sub_paths, volume, path: str, *, index: int = 0) -> Path:
    return Path(await sub_paths.prepare(UID, "main", index, volume="data", root=str(volume), path=path))


async def test_a_missing_directory_is_made_with_the_mode_of_the_volume(sub_paths, volume, base):
    target = await prepare(sub_paths, volume, "a/b")
    assert target == base / "kubelet/pods/uid-1/volume-subpaths/data/main/0"
    (target / "file").write_text("x")
    assert (volume / "a/b/file").read_text() == "x"
    assert stat.S_IMODE((volume / "a").stat().st_mode) == 0o2770


async def test_a_file(sub_paths, volume):
    (volume / "settings").write_text("x")
    target = await prepare(sub_paths, volume, "settings")
    assert target.read_text() == "x"


async def test_the_next_start_finds_it_bound(sub_paths, volume):
    first = await prepare(sub_paths, volume, "a")
    count = len(mounts.list_mounts())
    assert await prepare(sub_paths, volume, "a") == first
    assert len(mounts.list_mounts()) == count


async def test_another_directory_of_that_name_takes_its_place(sub_paths, volume):
    await prepare(sub_paths, volume, "a")
    (volume / "a").rename(volume / "old")
    target = await prepare(sub_paths, volume, "a")
    assert target.stat().st_ino == (volume / "a").stat().st_ino


async def test_what_is_bound_cannot_be_swapped_for_a_link(sub_paths, volume):
    (volume / "a").mkdir()
    target = await prepare(sub_paths, volume, "a")
    (volume / "a").rmdir()
    (volume / "a").symlink_to("/etc")
    assert not (target / "passwd").exists()


@pytest.mark.parametrize("link", ["/etc", "../../.."])
async def test_a_link_out_of_the_volume_is_refused(sub_paths, volume, link):
    (volume / "a").symlink_to(link)
    with pytest.raises(SubPathError, match="it leads out of") as caught:
        await prepare(sub_paths, volume, "a")
    assert caught.value.step == "prepare subPath"


async def test_a_link_by_its_whole_path_that_stays_in_the_volume_is_followed(sub_paths, volume):
    (volume / "releases/5").mkdir(parents=True)
    (volume / "current").symlink_to(volume / "releases/5")
    target = await prepare(sub_paths, volume, "current")
    assert target.stat().st_ino == (volume / "releases/5").stat().st_ino


async def test_nothing_is_made_below_a_file(sub_paths, volume):
    (volume / "file").touch()
    with pytest.raises(SubPathError) as caught:
        await prepare(sub_paths, volume, "file/x")
    assert caught.value.step == "prepare subPath"


async def test_nothing_is_made_where_a_dangling_link_points(sub_paths, volume):
    (volume / "link").symlink_to("gone")
    with pytest.raises(SubPathError) as caught:
        await prepare(sub_paths, volume, "link")
    assert caught.value.step == "create subPath directory"
    assert not (volume / "gone").exists()


async def test_a_named_pipe_keeps_nobody_waiting(sub_paths, volume):
    os.mkfifo(volume / "pipe")
    target = await prepare(sub_paths, volume, "pipe")
    assert stat.S_ISFIFO(target.stat().st_mode)


@pytest.mark.parametrize("becomes", ["file", "directory"])
async def test_a_part_that_has_become_of_another_kind_is_bound_again(sub_paths, volume, becomes):
    part = volume / "part"
    part.touch() if becomes == "directory" else part.mkdir()
    await prepare(sub_paths, volume, "part")
    part.unlink() if becomes == "directory" else part.rmdir()
    part.mkdir() if becomes == "directory" else part.touch()
    target = await prepare(sub_paths, volume, "part")
    assert target.stat().st_ino == part.stat().st_ino


async def test_a_neighbour_that_swaps_the_part_for_a_link_gains_nothing(sub_paths, volume, base):
    """A container that shares the volume swaps the directory for a link to the outside while another one starts."""
    outside = base / "outside"
    outside.mkdir()
    (volume / "part").mkdir()
    (volume / "spare").symlink_to(outside)
    bound = 0
    with swapping(volume / "part", volume / "spare"):
        for _ in range(300):
            try:
                target = await prepare(sub_paths, volume, "part")
            except SubPathError:
                continue
            bound += 1
            assert not os.path.samestat(target.stat(), outside.stat())
            await sub_paths.clean(UID)
    assert bound
    assert list(outside.iterdir()) == []


async def test_nothing_is_left_of_a_pod_that_is_over(sub_paths, volume, base):
    (volume / "kept").mkdir()
    for index, path in enumerate(("kept", "a", "b")):
        await prepare(sub_paths, volume, path, index=index)
    await sub_paths.clean(UID)
    await sub_paths.clean(UID)
    assert not (base / "kubelet/pods/uid-1/volume-subpaths").exists()
    assert not mounts.has_mounts_under(base / "kubelet")
    assert sorted(path.name for path in volume.iterdir()) == ["a", "b", "kept"]
