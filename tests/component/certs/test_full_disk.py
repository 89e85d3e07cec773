"""Certificates in a directory that is full, or that cannot be written."""

import subprocess

import pytest

from klet.certs.errors import PairError
from klet.certs.maker import CertificateMaker
from klet.certs.store import CLIENT_PREFIX, PairStore
from klet.testing.clock import ManualClock

pytestmark = pytest.mark.root


@pytest.fixture
def small_disk(tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "klet-test", str(tmp_path)], check=True)
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def make_read_only(path):
    subprocess.run(["mount", "-o", "remount,ro", str(path)], check=True)


async def pairs():
    maker = CertificateMaker(clock=ManualClock())
    return await maker.self_signed("first"), await maker.self_signed("second")


async def test_a_full_directory_keeps_the_pair_in_force(small_disk):
    first, second = await pairs()
    clock = ManualClock()
    store = PairStore(prefix=CLIENT_PREFIX, directory=small_disk, configured=None, clock=clock)
    kept = store.update(first.certificate, first.key)
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(b"x" * (64 << 10))
    before = sorted(path.name for path in small_disk.iterdir())
    with pytest.raises(PairError, match="No space left on device"):
        store.update(second.certificate, second.key)
    assert store.load() == kept
    assert sorted(path.name for path in small_disk.iterdir()) == before
    filler.unlink()
    assert store.update(second.certificate, second.key).certificate == second.certificate


async def test_a_read_only_directory_keeps_the_pair_in_force(small_disk):
    first, second = await pairs()
    store = PairStore(prefix=CLIENT_PREFIX, directory=small_disk, configured=None, clock=ManualClock())
    kept = store.update(first.certificate, first.key)
    make_read_only(small_disk)
    with pytest.raises(PairError, match="Read-only file system"):
        store.update(second.certificate, second.key)
    assert store.load() == kept
