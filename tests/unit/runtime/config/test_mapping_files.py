"""Files of user namespaces, and what a pod holds on the node."""

import os

import pytest

from klet.aio.threads import Threads
from klet.model.pods import PodUID
from klet.runtime.config.mapping_files import PodMappingFiles

A, B = PodUID("a"), PodUID("b")


@pytest.fixture
def files(tmp_path):
    threads = Threads(limit=1)
    yield PodMappingFiles(root=tmp_path, threads=threads)
    threads.close()


async def test_the_file_lies_in_the_pods_directory(files, tmp_path):
    (tmp_path / "pods" / "a").mkdir(parents=True)
    assert await files.read(A) is None
    await files.write(A, b"{}")
    assert (tmp_path / "pods/a/userns").read_bytes() == b"{}"
    assert await files.read(A) == b"{}"
    await files.remove(A)
    await files.remove(A)
    assert await files.read(A) is None


async def test_all_files_are_found_at_start(files, tmp_path):
    assert await files.read_all() == {}
    for name in ("a", "b", "c"):
        (tmp_path / "pods" / name).mkdir(parents=True)
    await files.write(A, b"1")
    await files.write(B, b"2")
    assert await files.read_all() == {"a": b"1", "b": b"2"}


async def test_what_others_put_there_neither_stops_nor_holds_up_the_start(files, tmp_path):
    pods = tmp_path / "pods"
    for name in ("a", "b", "c", "d", "e"):
        (pods / name).mkdir(parents=True)
    await files.write(A, b"1")
    os.mkfifo(pods / "b/userns")
    (pods / "c/userns").symlink_to(pods / "a/userns")
    (pods / "d/userns").mkdir()
    (pods / "e/userns").symlink_to("a" * 300)
    (pods / "f").symlink_to("a" * 300)
    (pods / "g").symlink_to(pods / "a")
    assert await files.read_all() == {"a": b"1"}
