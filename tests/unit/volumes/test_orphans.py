"""Directories of pods that are over."""

import pytest

from klet.volumes.directories import PodDirectories
from klet.volumes.errors import OrphanKept
from klet.volumes.names import Layout
from klet.volumes.orphans import OrphanedPods, remove_orphan


@pytest.fixture
def pod(tmp_path):
    made = tmp_path / "pods" / "u"
    made.mkdir(parents=True)
    return made


@pytest.mark.parametrize(
    "paths",
    [
        pytest.param(["not/a/volume/"], id="no volumes"),
        pytest.param(["volumes/plugin/name/"], id="an empty volume"),
        pytest.param(["volumes/plugin/name/sub/"], id="an empty volume with an empty directory"),
        pytest.param(["volumes/kubernetes.io~csi/name/mount/"], id="an empty csi volume"),
        pytest.param(["volume-subpaths/v/c/0/"], id="an empty directory of a subPath"),
        pytest.param(["volume-subpaths/v/c/0"], id="a file of a subPath"),
        pytest.param(["containers/c/1234", "etc-hosts", "plugins/p/wrapped_v/ready"], id="what klet itself has made"),
        pytest.param([], id="nothing"),
    ],
)
def test_a_directory_that_goes(pod, paths):
    make(pod, paths)
    remove_orphan(pod, "u")
    assert not pod.exists()


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        pytest.param(
            ["volumes/plugin/name/file", "etc-hosts"],
            'orphaned pod "u" found, but failed to rmdir() volume at path {pod}/volumes/plugin/name: ',
            id="content of a volume",
        ),
        pytest.param(
            ["volume-subpaths/v/c/0/file"],
            'orphaned pod "u" found, but failed to rmdir() subpath at path {pod}/volume-subpaths/v/c/0: ',
            id="content of a subPath",
        ),
        pytest.param(
            ["volumes/file"],
            'orphaned pod "u" found, but error occurred when trying to remove the volumes dir: ',
            id="a file among the volumes",
        ),
    ],
)
def test_a_directory_that_stays_with_all_its_content(pod, paths, message):
    make(pod, paths)
    with pytest.raises(OrphanKept) as caught:
        remove_orphan(pod, "u")
    assert str(caught.value).startswith(message.format(pod=pod))
    assert all((pod / path).exists() for path in paths)


def test_a_link_in_place_of_the_volumes_is_not_followed(pod, tmp_path):
    outside = tmp_path / "outside"
    (outside / "plugin" / "name").mkdir(parents=True)
    (pod / "volumes").symlink_to(outside)
    with pytest.raises(OrphanKept):
        remove_orphan(pod, "u")
    assert (outside / "plugin" / "name").exists()


def test_a_link_in_place_of_the_pod_is_not_followed(pod, tmp_path):
    outside = tmp_path / "outside"
    (outside / "containers").mkdir(parents=True)
    pod.rmdir()
    pod.symlink_to(outside)
    with pytest.raises(OrphanKept, match="its directory is a link"):
        remove_orphan(pod, "u")
    assert (outside / "containers").exists()


def test_a_link_among_the_subpaths_is_not_followed(pod, tmp_path):
    outside = tmp_path / "outside"
    make(outside, ["c/file", "c/empty/"])
    make(pod, ["volume-subpaths/"])
    (pod / "volume-subpaths" / "v").symlink_to(outside)
    remove_orphan(pod, "u")
    assert (outside / "c" / "file").exists()
    assert (outside / "c" / "empty").exists()
    assert not pod.exists()


def test_directories_deeper_than_klet_makes_them_stay(pod):
    make(pod, ["volumes/plugin/name/" + "d/" * 300])
    with pytest.raises(OrphanKept, match="it is too deep"):
        remove_orphan(pod, "u")


async def test_only_directories_named_by_a_uid_are_pods(machine, pod, tmp_path):
    for name in ("lost+found", ".hidden", "a_b"):
        (pod.parent / name).mkdir()
    (pod.parent / "link").symlink_to(tmp_path)
    assert await PodDirectories(layout=Layout(machine.root), threads=machine.threads).pods() == ["u"]


def test_a_pod_without_a_directory(pod):
    pod.rmdir()
    remove_orphan(pod, "u")


class Ends:
    """Volumes that end, or do not."""

    def __init__(self, *, exist):
        self.exist = exist
        self.ended = []

    async def wait_for_unmount(self, uid):
        self.ended.append(uid)

    async def pod_volumes_exist(self, uid):
        assert self.ended == [uid]
        return self.exist


def orphans(machine, ends):
    directories = PodDirectories(layout=Layout(machine.root), threads=machine.threads)
    return OrphanedPods(volumes=ends, directories=directories)


async def test_volumes_end_before_the_directory_goes(machine, pod):
    await orphans(machine, Ends(exist=False)).remove("u")
    assert not pod.exists()


async def test_a_pod_whose_volumes_are_still_there_stays(machine, pod):
    with pytest.raises(OrphanKept, match="volumes are not cleaned up"):
        await orphans(machine, Ends(exist=True)).remove("u")
    assert pod.exists()


def make(pod, paths):
    for path in paths:
        if path.endswith("/"):
            (pod / path).mkdir(parents=True)
        else:
            (pod / path).parent.mkdir(parents=True, exist_ok=True)
            (pod / path).touch()
