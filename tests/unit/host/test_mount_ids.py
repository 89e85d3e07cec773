import os
import stat
from pathlib import Path

import pytest

from klet.host.mount_ids import is_in_directory, look_at, mount_id


@pytest.fixture
def here(tmp_path):
    opened = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    yield opened
    os.close(opened)


def test_it_is_the_kernels_number(here):
    shown = dict(line.split(":", 1) for line in Path(f"/proc/self/fdinfo/{here}").read_text().splitlines())
    assert mount_id(here) == int(shown["mnt_id"])


@pytest.mark.parametrize(
    ("name", "is_right"),
    [("directory", stat.S_ISDIR), ("file", stat.S_ISREG), ("link", stat.S_ISLNK), ("pipe", stat.S_ISFIFO)],
)
def test_an_entry_is_what_has_the_name_itself(tmp_path, here, name, is_right):
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/proc")
    os.mkfifo(tmp_path / "pipe")
    found = look_at(here, name)
    assert is_right(found.mode)
    assert found.mount == mount_id(here)


def test_what_is_not_there_is_missing(here):
    with pytest.raises(FileNotFoundError):
        look_at(here, "missing")


def test_proc_is_another_mount(here):
    assert is_in_directory(here, Path(f"/proc/self/fd/{here}"))
    assert not is_in_directory(here, Path("/proc"))
