import os
import signal
import subprocess
import sys

import pytest

from klet.testing.killed_agent import full_path

# It hears what it does itself; the descriptor is of the directory in which the names are.
STORY = """
import os, sys
from klet.testing.killed_agent import Killer
top, number = sys.argv[1], int(sys.argv[2])
at = os.open(top, os.O_PATH)
sys.addaudithook(Killer(number=number, below=[top]).hear)
os.mkdir(os.path.join(os.path.dirname(top), "elsewhere" + sys.argv[2]))
os.mkdir(os.path.join(top, "1"))
os.mkdir("2", dir_fd=at)
os.symlink("anything", "3", dir_fd=at)
os.rename("3", "4", src_dir_fd=at, dst_dir_fd=at)
os.chmod(f"/proc/self/fd/{at}/1", 0o700)
os.unlink("4", dir_fd=at)
"""


@pytest.mark.parametrize(
    ("number", "left"),
    [
        pytest.param(1, [], id="before the first change, which is not the one elsewhere"),
        pytest.param(2, ["1"], id="a name in a directory that is open"),
        pytest.param(4, ["1", "2", "3"], id="a new name"),
        pytest.param(5, ["1", "2", "4"], id="a way through a descriptor"),
        pytest.param(6, ["1", "2", "4"], id="the last change"),
        pytest.param(7, ["1", "2"], id="more than there are: it lives"),
    ],
)
def test_it_is_killed_before_a_change(tmp_path, number, left):
    top = tmp_path / "top"
    top.mkdir()
    done = subprocess.run([sys.executable, "-c", STORY, str(top), str(number)], check=False)
    assert done.returncode == (0 if number > 6 else -signal.SIGKILL)
    assert sorted(path.name for path in top.iterdir()) == left
    assert (tmp_path / f"elsewhere{number}").exists()


def test_a_path_is_found_whatever_it_begins_at(tmp_path):
    at = os.open(tmp_path, os.O_PATH)
    try:
        found = [
            full_path(*each) for each in [("n", at), (f"/proc/self/fd/{at}/n", -1), (f"{tmp_path}/n", at), (at, -1)]
        ]
        assert found == [f"{tmp_path}/n", f"{tmp_path}/n", f"{tmp_path}/n", str(tmp_path)]
    finally:
        os.close(at)
    assert full_path("n", at) == "n"
