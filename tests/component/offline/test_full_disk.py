"""What is kept on a filesystem that is full."""

import subprocess

import pytest

from klet.aio.threads import Threads
from klet.api.config import ConfigMap
from klet.checkpoint import CheckpointError
from klet.offline.object_formats import Known
from klet.offline.sealing import load_sealer
from klet.offline.snapshot import AcceptedPods
from klet.offline.store import open_store
from klet.testing.builders import NOW, make_pod
from klet.testing.clock import ManualClock

pytestmark = pytest.mark.root


@pytest.fixture
def small_disk(tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "klet-test", str(tmp_path)], check=True)
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.fixture
def threads():
    made = Threads(limit=2)
    yield made
    made.close()


def accepted(count):
    pods = tuple(make_pod(name=f"p{number}", uid=f"u{number}") for number in range(count))
    return AcceptedPods(node_name="n", at=NOW, pods=pods)


async def test_pods_that_are_not_up_to_date_are_forgotten_until_there_is_room(small_disk, threads, caplog):
    """An agent that went by them would stop what it has started since."""

    async def open_again():
        return await open_store(
            small_disk / "offline", node_name="n", make_sealer=load_sealer, threads=threads, clock=ManualClock()
        )

    store = await open_again()
    await store.pods.save(accepted(2))
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(b"x" * (256 << 10))
    with pytest.raises(CheckpointError, match="No space left"):
        await store.pods.save(accepted(200))
    await store.config_maps.keep("ns/cfg", ConfigMap(data={"x": "y" * 20_000}), version="1")
    assert caplog.messages == ["Not kept for the time without an API server"]
    assert (await open_again()).left_pods is None
    filler.unlink()
    await store.pods.save(accepted(3))
    await store.config_maps.keep("ns/cfg", ConfigMap(), version="1")
    later = await open_again()
    assert later.left_pods == accepted(3)
    assert await later.config_maps.find("ns/cfg") == Known(ConfigMap())
    assert not list((small_disk / "offline").rglob(".*"))
