"""Files of user namespaces, and what a pod holds on the node."""

import pytest

from klet.aio.threads import Threads
from klet.app.container_ports import PodMappingFiles
from klet.model.pods import PodUID

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
