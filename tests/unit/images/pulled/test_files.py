"""The directories with the files of pulled images, also with what does not belong there."""

import os
import stat

import pytest

from klet.aio.threads import Threads
from klet.host.errors import FileError
from klet.images.pulled.files import PullDirectory, PullFileDirectories
from klet.images.pulled.format import SIZE_LIMIT, file_name

PULLED = PullDirectory.PULLED
NAME = file_name("sha256:1")


@pytest.fixture
def threads():
    made = Threads(limit=1)
    yield made
    made.close()


@pytest.fixture
def files(tmp_path, threads):
    return PullFileDirectories(root=tmp_path / "image_manager", threads=threads)


@pytest.fixture
def pulled(tmp_path):
    path = tmp_path / "image_manager/pulled"
    path.mkdir(parents=True)
    return path


async def test_what_is_written_is_read(files, tmp_path):
    assert await files.names(PULLED) == frozenset()
    assert await files.read(PULLED, NAME) is None
    await files.write(PULLED, NAME, b"one")
    await files.write(PULLED, NAME, b"two")
    assert await files.read(PULLED, NAME) == b"two"
    assert await files.names(PULLED) == {NAME}
    assert await files.names(PullDirectory.PULLING) == frozenset()
    assert (tmp_path / "image_manager/pulled" / NAME).read_bytes() == b"two"
    await files.remove(PULLED, NAME)
    await files.remove(PULLED, NAME)
    assert await files.names(PULLED) == frozenset()


async def test_nobody_else_reads_them(files, tmp_path):
    await files.write(PULLED, NAME, b"one")
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "image_manager", *tmp_path.rglob("*/*"))
    }
    assert modes == {"image_manager": 0o700, "pulled": 0o700, NAME: 0o600}


async def test_other_names_are_left_alone_and_unfinished_files_removed(files, pulled):
    for name in (NAME, f"{NAME}.tmp", "README", f".{NAME}.0123456789ab", ".README.0123456789ab"):
        (pulled / name).write_text("x")
    assert await files.names(PULLED) == {NAME}
    assert {path.name for path in pulled.iterdir()} == {NAME, f"{NAME}.tmp", "README", ".README.0123456789ab"}


async def test_too_many_names_are_not_listed(threads, pulled):
    files = PullFileDirectories(root=pulled.parent, threads=threads, most_names=3)
    for number in range(3):
        (pulled / file_name(str(number))).touch()
    assert len(await files.names(PULLED)) == 3
    (pulled / NAME).touch()
    assert await files.names(PULLED) is None


@pytest.mark.parametrize("kind", ["a link", "a pipe", "a directory", "too long"])
async def test_what_is_no_small_file_is_refused_at_once(files, pulled, tmp_path, kind):
    path = pulled / NAME
    match kind:
        case "a link":
            (tmp_path / "secret").write_text("secret")
            path.symlink_to(tmp_path / "secret")
        case "a pipe":
            os.mkfifo(path)
        case "a directory":
            path.mkdir()
        case _:
            path.write_bytes(b"x" * (SIZE_LIMIT + 1))
    with pytest.raises(FileError) as caught:
        await files.read(PULLED, NAME)
    assert str(path) in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_a_directory_that_is_a_link_is_not_followed(files, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / NAME).write_text("secret")
    (tmp_path / "image_manager").mkdir()
    (tmp_path / "image_manager/pulled").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileError, match="Not a directory"):
        await files.read(PULLED, NAME)


async def test_a_place_that_cannot_be_written(files, tmp_path):
    (tmp_path / "image_manager").write_text("a file")
    with pytest.raises(FileError, match="cannot make"):
        await files.write(PULLED, NAME, b"x")
    with pytest.raises(FileError):
        await files.names(PULLED)
