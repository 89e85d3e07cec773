"""Directories that get a project of their own, keep it through a restart, and give it back."""

import asyncio
import fcntl
import os
from contextlib import contextmanager

import pytest

from klet.host.errors import FileError, FileMissing
from klet.host.project_files import FIRST_PROJECT, ProjectFilePaths, ProjectFilesBusy
from klet.host.project_quotas import (
    MOST,
    PATIENCE,
    ChooseNew,
    HostProjectQuotas,
    ListMarked,
    UseListed,
    choose_project,
)
from klet.host.quotactl import ProjectMark
from klet.host.tree_usage import TreeUsage
from klet.testing.clock import ManualClock
from klet.testing.project_quotas import FakeProjectKernel

FIRST, SECOND = FIRST_PROJECT, FIRST_PROJECT + 1
OURS, NOT_OURS = ProjectMark(FIRST, inherits=True), ProjectMark(7, inherits=True)


NONE = ProjectMark()


@pytest.mark.parametrize(
    ("mark", "listed", "taken", "above", "expected"),
    [
        pytest.param(ProjectMark(), None, set(), NONE, ChooseNew(), id="a new directory gets a new one"),
        pytest.param(OURS, FIRST, {FIRST}, NONE, UseListed(FIRST), id="after a restart it keeps what it has"),
        pytest.param(
            ProjectMark(), SECOND, {SECOND}, NONE, UseListed(SECOND), id="what is listed for it was meant for it"
        ),
        pytest.param(
            OURS, SECOND, {FIRST, SECOND}, NONE, UseListed(SECOND), id="what is listed counts more than its mark"
        ),
        pytest.param(
            OURS, None, set(), NONE, ListMarked(FIRST), id="files that were lost are written again from the mark"
        ),
        pytest.param(OURS, None, {FIRST}, NONE, ChooseNew(), id="unless another directory has that project by now"),
        pytest.param(
            ProjectMark(FIRST), None, set(), NONE, ChooseNew(), id="a mark that is not passed on counts nothing"
        ),
        pytest.param(NOT_OURS, None, set(), NONE, ChooseNew(), id="a project of the administrator is not taken over"),
        pytest.param(ProjectMark(), 7, {7}, NONE, None, id="a number of the administrator is listed for it"),
        pytest.param(ProjectMark(), 0, {0}, NONE, None, id="no project at all is listed for it"),
        pytest.param(OURS, None, set(), OURS, ChooseNew(), id="a project that all of the node has is not its own"),
        pytest.param(OURS, FIRST, {FIRST}, OURS, UseListed(FIRST), id="unless it is listed for it"),
    ],
)
def test_choose_project(mark, listed, taken, above, expected):
    assert choose_project(mark, listed, frozenset(taken), above=above) == expected


class InlineThreads:
    """Runs on the spot what would run on a thread."""

    async def run(self, function, *args, **kwargs):
        return function(*args, **kwargs)


class Node:
    """A machine with pods, of which agents can start one after the other."""

    def __init__(self, root):
        self.pods = root / "pods"
        self.files = ProjectFilePaths(root / "etc" / "projects", root / "etc" / "projid")
        self.files.projects.parent.mkdir()
        self.kernel = FakeProjectKernel()
        self.clock = ManualClock()
        self.quotas = self.start()

    def start(self):
        return HostProjectQuotas(files=self.files, kernel=self.kernel, threads=InlineThreads(), clock=self.clock)

    def volume(self, name="v"):
        path = self.pods / "u" / "volumes" / "kubernetes.io~empty-dir" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    async def assign(self, path):
        await self.quotas.assign(path, depth=4)

    async def release(self, path):
        await self.quotas.release(path, depth=4)

    def mark(self, path):
        with opened(path) as directory:
            return self.kernel.read_mark(directory)

    def usage(self, path):
        with opened(path, os.O_PATH) as directory:
            return self.quotas.usage_of(directory)

    async def refused(self, path):
        with pytest.raises(ProjectFilesBusy) as refusal:
            await self.assign(path)
        return str(refusal.value)

    def listed_directories(self):
        return self.files.projects.read_text()

    def listed(self):
        return self.files.projects.read_text(), self.files.names.read_text()


@contextmanager
def opened(path, flags=os.O_RDONLY):
    descriptor = os.open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


async def test_each_directory_gets_a_project_of_its_own(node):
    one, two = node.volume("one"), node.volume("two")
    await node.assign(one)
    await node.assign(two)
    assert node.listed() == (
        f"{FIRST}:{one}\n{SECOND}:{two}\n",
        f"volume{FIRST}:{FIRST}\nvolume{SECOND}:{SECOND}\n",
    )
    assert [node.mark(path) for path in (one, two)] == [OURS, ProjectMark(SECOND, inherits=True)]
    assert node.kernel.limits == {FIRST: MOST, SECOND: MOST}


async def test_usage_is_what_the_kernel_has_counted(node):
    volume = node.volume()
    assert node.usage(volume) is None
    await node.assign(volume)
    node.kernel.used[FIRST] = 5 << 20
    assert node.usage(volume) == TreeUsage(used=5 << 20, inodes=1)


async def test_usage_of_others_is_not_read(node):
    volume = node.volume()
    await node.assign(volume)
    # What is made in it has its project, and is no volume.
    assert node.usage(node.pods) is None
    (volume / "below").mkdir()
    assert node.usage(volume / "below") is None


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda node, directory: node.kernel.write_mark(directory, NOT_OURS), id="has another project"),
        pytest.param(
            lambda node, directory: node.kernel.write_mark(directory, ProjectMark(FIRST)), id="does not pass it on"
        ),
        pytest.param(
            lambda node, _: setattr(node.kernel, "refuses_usage", True),
            id="is on a filesystem that refuses to answer",
        ),
    ],
)
async def test_a_directory_is_walked_again_if_it(node, change):
    volume = node.volume()
    await node.assign(volume)
    assert node.usage(volume) is not None
    with opened(volume) as directory:
        change(node, directory)
    assert node.usage(volume) is None


async def test_assigning_again_changes_nothing(node):
    volume = node.volume()
    await node.assign(volume)
    before = node.files.projects.stat().st_ino
    node.kernel.written.clear()
    await node.assign(volume)
    assert (node.files.projects.stat().st_ino, node.kernel.written) == (before, [])


async def test_the_next_agent_finds_the_project_on_the_directory(node):
    volume = node.volume()
    await node.assign(volume)
    before, inode = node.listed(), node.files.projects.stat().st_ino
    node.kernel.used[FIRST] = 4096
    node.kernel.written.clear()
    node.quotas = node.start()
    assert node.usage(volume) is None
    await node.assign(volume)
    assert node.usage(volume) == TreeUsage(used=4096, inodes=1)
    # Neither the files nor the tree were written again.
    assert (node.listed(), node.files.projects.stat().st_ino, node.kernel.written) == (before, inode, [])


async def test_the_next_agent_lists_a_marked_directory_again(node):
    volume = node.volume()
    await node.assign(volume)
    before = node.listed()
    node.files.projects.unlink()
    node.files.names.unlink()
    node.quotas = node.start()
    await node.assign(volume)
    assert node.listed() == before


async def test_a_project_of_the_whole_node_stays_the_administrators(node):
    volume = node.volume()
    everything = ProjectMark(FIRST + 7, inherits=True)
    for path in (volume.parent, volume):
        with opened(path) as directory:
            node.kernel.write_mark(directory, everything)
    node.kernel.limits[FIRST + 7] = 1 << 40
    await node.assign(volume)
    assert node.mark(volume) == OURS
    await node.release(volume)
    assert node.kernel.limits == {FIRST: 0, FIRST + 7: 1 << 40}


async def test_what_was_in_the_directory_before_is_counted(node):
    volume = node.volume()
    (volume / "below").mkdir()
    (volume / "below" / "file").touch()
    await node.assign(volume)
    assert node.mark(volume / "below" / "file") == ProjectMark(FIRST)
    assert node.usage(volume) == TreeUsage(inodes=3)


async def test_projects_that_somebody_uses_are_not_chosen(node):
    node.files.projects.write_text(f"{FIRST}:/srv/data\n")
    node.files.names.write_text(f"mine:{SECOND}\n")
    node.kernel.used[FIRST + 2] = 1
    node.kernel.limits[FIRST + 3] = 1
    await node.assign(node.volume())
    assert node.mark(node.volume()).project == FIRST + 4
    assert node.listed()[0].startswith(f"{FIRST}:/srv/data\n")


async def test_a_filesystem_without_quotas_is_left_alone(node):
    node.kernel.is_on = False
    volume = node.volume()
    await node.assign(volume)
    assert not node.files.projects.exists()
    assert node.usage(volume) is None
    await node.release(volume)
    assert (node.kernel.written, node.kernel.limits) == ([], {})


async def test_a_directory_that_cannot_be_marked_is_not_listed(node):
    node.kernel.refuses_marks = True
    with pytest.raises(FileError, match=r"cannot assign a project quota to .*/v: Operation not permitted"):
        await node.assign(node.volume())
    assert node.listed() == ("", "")
    assert node.kernel.limits == {FIRST: 0}


async def test_a_tree_that_is_too_large_is_walked_as_before(node):
    volume = node.volume()
    volume.joinpath(*["d"] * 102).mkdir(parents=True)
    await node.assign(volume)
    assert node.usage(volume) is None
    assert node.listed() == ("", "")
    assert node.kernel.written == []


async def test_a_directory_that_is_missing_gets_nothing(node):
    with pytest.raises(FileMissing):
        await node.assign(node.pods / "u" / "volumes" / "p" / "v")
    assert not node.files.projects.exists()


async def test_a_link_in_place_of_the_directory_is_not_followed(node, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    volume = node.volume()
    volume.rmdir()
    volume.symlink_to(elsewhere)
    with pytest.raises(FileError):
        await node.assign(volume)
    assert node.mark(elsewhere) == ProjectMark()


async def test_a_project_of_the_administrator_that_is_listed_for_it_is_an_error(node):
    volume = node.volume()
    node.files.projects.write_text(f"0:{volume}\n")
    with pytest.raises(FileError, match="not one of volumes"):
        await node.assign(volume)
    assert node.kernel.written == []


@pytest.mark.parametrize("restarts", [False, True], ids=["by the same agent", "by the next agent"])
@pytest.mark.parametrize("is_gone", [False, True], ids=["the directory is there", "the directory is gone"])
async def test_a_project_is_released(node, restarts, is_gone):
    volume, other = node.volume(), node.volume("other")
    await node.assign(volume)
    await node.assign(other)
    if restarts:
        node.quotas = node.start()
    if is_gone:
        volume.rmdir()
    await node.release(volume)
    assert node.listed() == (f"{SECOND}:{other}\n", f"volume{SECOND}:{SECOND}\n")
    assert node.kernel.limits == {FIRST: 0, SECOND: MOST}
    if not is_gone:
        assert node.usage(volume) is None


async def test_a_released_number_is_given_to_the_next_directory(node):
    volume = node.volume()
    await node.assign(volume)
    await node.release(volume)
    # Its files still belong to it, until they are removed.
    await node.assign(node.volume("next"))
    assert node.mark(node.volume("next")).project == SECOND
    volume.rmdir()
    await node.assign(node.volume("third"))
    assert node.mark(node.volume("third")).project == FIRST


async def test_releasing_what_has_none_touches_no_file(node):
    node.files.projects.write_text("7:/srv/data\n")
    before = node.files.projects.stat()
    await node.release(node.volume())
    assert node.files.projects.stat() == before
    assert not node.files.names.exists()


async def test_the_limit_of_a_project_that_others_have_too_stays(node):
    volume = node.volume()
    await node.assign(volume)
    node.files.projects.write_text(f"{FIRST}:{volume}\n{FIRST}:/srv/data\n")
    await node.release(volume)
    assert node.kernel.limits == {FIRST: MOST}
    assert node.listed()[0] == f"{FIRST}:/srv/data\n"


async def test_files_that_another_process_has_are_waited_for(node):
    volume = node.volume()
    node.files.projects.touch()
    async with asyncio.TaskGroup() as group:
        with node.files.projects.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            group.create_task(node.assign(volume))
            await node.clock.until_asleep()
        node.clock.advance(PATIENCE / 2)
    assert node.mark(volume) == OURS


async def test_files_that_another_process_keeps_are_given_up(node):
    node.files.projects.touch()
    with node.files.projects.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        async with asyncio.TaskGroup() as group:
            assigning = group.create_task(node.refused(node.volume()))
            await node.clock.until_asleep()
            node.clock.advance(PATIENCE)
    assert "another process has locked it" in assigning.result()
    assert node.listed_directories() == ""
