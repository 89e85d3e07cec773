import asyncio
import stat
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klet.aio.threads import Threads
from klet.api.authentication import TokenRequest, TokenRequestStatus
from klet.api.config import ConfigMap, Secret
from klet.checkpoint import CheckpointError, Envelope
from klet.offline.errors import KeyUnusable
from klet.offline.object_files import NoFiles
from klet.offline.object_formats import Known
from klet.offline.sealing import load_sealer
from klet.offline.snapshot import AcceptedPods, KeptCluster, PodsFormat
from klet.offline.store import KEY_SIZE, ensure_key, open_store
from klet.testing.builders import make_pod
from klet.testing.clock import ManualClock

AT = datetime(2030, 1, 1, tzinfo=UTC)


def accepted(*names, node_name="n"):
    return AcceptedPods(node_name=node_name, at=AT, pods=tuple(make_pod(name=name, uid=name) for name in names))


@pytest.fixture
def open_again(tmp_path, threads):
    async def open_directory(node_name="n"):
        return await open_store(
            tmp_path / "offline", node_name=node_name, make_sealer=load_sealer, threads=threads, clock=ManualClock()
        )

    return open_directory


async def test_a_later_life_finds_everything(open_again, tmp_path):
    store = await open_again()
    assert (store.left_pods, store.left_surroundings) == (None, None)
    around = KeptCluster(node_name="n", at=AT, nodes=(), services=(), runtime_classes=())
    await store.pods.save(accepted("p"))
    await store.surroundings.save(around)
    await store.config_maps.keep("ns/c", ConfigMap(data={"a": "1"}), version="1")
    await store.secrets.keep("ns/s", Secret(data={"a": b"hidden"}), version="1")
    await store.tokens.keep("u/t", TokenRequest(status=TokenRequestStatus(token="hidden")), version="1")
    later = await open_again()
    assert (later.left_pods, later.left_surroundings) == (accepted("p"), around)
    assert await later.config_maps.find("ns/c") == Known(ConfigMap(data={"a": "1"}))
    assert await later.secrets.find("ns/s") == Known(Secret(data={"a": b"hidden"}))
    assert (await later.tokens.find("u/t")).value.status.token == "hidden"
    files = [path for path in (tmp_path / "offline").rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "offline").stat().st_mode) == 0o700
    assert not any(b"hidden" in path.read_bytes() for path in files)


async def test_pods_of_another_node_are_not_started(open_again, caplog):
    await (await open_again("a")).pods.save(accepted("p", node_name="a"))
    assert (await open_again("b")).left_pods is None
    assert caplog.messages == ["What was kept belongs to another node and is not used"]


async def test_damaged_pods_are_set_aside_and_the_rest_is_used(open_again, tmp_path, caplog):
    store = await open_again()
    await store.pods.save(accepted("p"))
    await store.config_maps.keep("ns/c", ConfigMap(), version="1")
    file = tmp_path / "offline" / "pods.json"
    file.write_bytes(file.read_bytes()[:-20])
    later = await open_again()
    assert later.left_pods is None
    assert caplog.messages == ["Checkpoint is damaged and was set aside"]
    assert len(list((tmp_path / "offline").glob("pods.json.corrupt-*"))) == 1
    assert await later.config_maps.find("ns/c") == Known(ConfigMap())


async def test_pods_of_a_later_klet_are_not_used(open_again, tmp_path, caplog):
    await open_again()
    file = tmp_path / "offline" / "pods.json"
    file.write_bytes(Envelope(kind="AcceptedPods", version=2, payload=list[int]).encode([1]))
    content = file.read_bytes()
    assert (await open_again()).left_pods is None
    assert caplog.messages == ["What was kept cannot be used"]
    assert file.read_bytes() == content


async def test_a_write_that_fails_raises_in_the_caller(open_again, tmp_path):
    store = await open_again()
    (tmp_path / "offline" / "pods.json").mkdir()  # a file cannot take its place
    with pytest.raises(CheckpointError, match="not written"):
        await store.pods.save(accepted("p"))


async def test_half_a_file_of_a_killed_writer_goes(open_again, tmp_path):
    store = await open_again()
    await store.secrets.keep("ns/s", None, version="-")
    left = tmp_path / "offline" / "secrets" / ".x.json.0123456789ab"
    left.write_bytes(b"half")
    await open_again()
    assert not left.exists()


async def test_a_key_that_cannot_be_had_costs_the_secrets_only(tmp_path, threads, caplog):
    (tmp_path / "offline" / "key").mkdir(parents=True)
    store = await open_store(
        tmp_path / "offline", node_name="n", make_sealer=load_sealer, threads=threads, clock=ManualClock()
    )
    assert isinstance(store.secrets, NoFiles)
    assert isinstance(store.tokens, NoFiles)
    assert caplog.messages == ["Secrets and tokens are not kept: they cannot be sealed"]
    await store.pods.save(accepted("p"))


async def test_a_directory_that_cannot_be_used_stops_no_other(tmp_path, threads, caplog):
    (tmp_path / "offline").write_bytes(b"in the way")
    store = await open_store(
        tmp_path / "offline", node_name="n", make_sealer=load_sealer, threads=threads, clock=ManualClock()
    )
    assert store.left_pods is None
    assert "The directory of kept pods cannot be used" in caplog.messages
    with pytest.raises(CheckpointError):
        await store.pods.save(accepted("p"))


@settings(max_examples=40)
@given(
    writes=st.lists(st.lists(st.sampled_from("abcdef"), unique=True), max_size=6),
    lost=st.lists(st.sampled_from("abcdef"), unique=True),
    cut=st.floats(min_value=0, max_value=1),
)
def test_after_a_kill_the_last_whole_write_is_found(tmp_path_factory, writes, lost, cut):
    """Wherever the next write was cut short."""
    directory = tmp_path_factory.mktemp("store")

    async def live_and_die():
        threads = Threads(limit=1)
        store = await open_store(
            directory, node_name="n", make_sealer=load_sealer, threads=threads, clock=ManualClock()
        )
        for names in writes:
            await store.pods.save(accepted(*names))
        content = PodsFormat().encode(accepted(*lost))
        (directory / ".pods.json.0123456789ab").write_bytes(content[: int(cut * len(content))])
        later = await open_store(
            directory, node_name="n", make_sealer=load_sealer, threads=threads, clock=ManualClock()
        )
        threads.close()
        return later.left_pods

    assert asyncio.run(live_and_die()) == (accepted(*writes[-1]) if writes else None)
    assert not list(directory.glob(".pods*"))


def test_the_key_is_made_once_and_for_root_only(tmp_path):
    path = tmp_path / "klet-offline" / "key"
    key = ensure_key(path)
    assert len(key) == KEY_SIZE
    assert ensure_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_key_that_others_can_read_is_closed_again(tmp_path, caplog):
    path = tmp_path / "key"
    key = ensure_key(path)
    path.chmod(0o644)
    assert ensure_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert caplog.messages == ["The key of the node was open to others"]


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33], ids=["nothing", "a byte lost", "a byte too many"])
def test_a_damaged_key_is_set_aside_and_made_again(tmp_path, caplog, content):
    path = tmp_path / "key"
    path.write_bytes(content)
    assert len(ensure_key(path)) == KEY_SIZE
    assert (tmp_path / "key.corrupt").read_bytes() == content
    assert caplog.messages == ["The key of the node is damaged and was set aside"]


def test_a_key_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(KeyUnusable, match="cannot be"):
        ensure_key(tmp_path / "file" / "key")


def test_a_key_that_cannot_be_read(tmp_path):
    (tmp_path / "key").mkdir()
    with pytest.raises(KeyUnusable, match="remove the file to have a new one"):
        ensure_key(tmp_path / "key")
