"""What klet reads from a content store over gRPC, and what it makes of one that answers nonsense."""

from datetime import UTC, datetime, timedelta

import pytest
from grpc import aio

from klet.cri.connection import open_connection
from klet.cri.content import MOST_BLOBS, NAMESPACE, ContainerdContent
from klet.cri.errors import BadAnswer, CriError, Unavailable, Unimplemented
from klet.testing.fake_content import FakeContent
from klet.wire import containerd_content_pb2 as pb

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def digest(name):
    return f"sha256:{name * 64}"


A, B = digest("a"), digest("b")


@pytest.fixture
def content():
    return FakeContent()


@pytest.fixture
async def store(content, tmp_path):
    async with content.serve(tmp_path / "c.sock") as endpoint, open_connection(endpoint, metadata=NAMESPACE) as way:
        # Longer than in the agent: a busy machine has to list many blobs in it.
        yield ContainerdContent(connection=way, deadline=timedelta(seconds=60))


async def test_ingests_are_known_by_their_digests(store, content):
    content.fetch(A, offset=7, total=10, began=NOW)
    content.statuses["build"] = pb.Status(ref="buildkit-1", offset=1)
    content.statuses["empty"] = pb.Status(ref="", offset=1)
    content.statuses["below"] = pb.Status(ref=f"config-{B}", offset=-5)
    first, second = await store.ingests()
    assert (first.digest, first.offset, first.began) == (A, 7, NOW)
    assert (second.digest, second.offset) == (B, 0)


async def test_manifests_of_a_host_and_the_repositories_they_came_from(store, content):
    one = content.add_manifest(b"1", created=NOW, host="registry.test", repositories=("team/app", "other"))
    content.add_manifest(b"2", created=NOW, host="elsewhere.test", repositories=("team/app",))
    content.add_blob(A, size=5, created=NOW)
    [found] = await store.manifests("registry.test")
    assert (found.digest, found.created, found.repositories) == (one, NOW, {"team/app", "other"})


async def test_a_host_that_is_none_never_reaches_the_store(store, content):
    assert await store.manifests('x"||labels."y') == []
    assert content.calls == []


async def test_blobs_by_digest(store, content):
    content.add_blob(A, size=5, created=NOW)
    content.add_blob(B, size=6, created=NOW)
    [found] = await store.blobs([A, digest("c")])
    assert (found.digest, found.size) == (A, 5)


async def test_no_digest_at_all_does_not_list_everything(store, content):
    content.add_blob(A, size=5, created=NOW)
    assert await store.blobs([]) == []
    assert await store.blobs(['sha256:zz"']) == []
    assert content.calls == []


async def test_a_manifest_is_read_whole(store, content):
    data = b"x" * 200_000
    name = content.add_manifest(data, created=NOW, host="h", repositories=("r",))
    assert await store.read(name) == data


async def test_a_manifest_without_an_end_is_given_up(store, content):
    content.data[A] = b"x" * (5 << 20)
    with pytest.raises(BadAnswer, match="has more than"):
        await store.read(A)


async def test_too_many_blobs_are_given_up(store, content):
    infos = [pb.Info(digest=A) for _ in range(MOST_BLOBS + 1)]
    content.infos = {str(number): info for number, info in enumerate(infos)}
    with pytest.raises(BadAnswer, match="lists more than"):
        await store.blobs([A])


@pytest.mark.parametrize(
    "info",
    [
        pytest.param(pb.Info(digest="../../etc/passwd", size=5), id="a digest that is none"),
        pytest.param(pb.Info(digest="", size=5), id="no digest"),
    ],
)
async def test_blobs_without_a_digest_are_left_out(store, content, info):
    info.labels["containerd.io/distribution.source.h"] = "r"
    info.labels["containerd.io/gc.ref.content.config"] = "x"
    content.infos["x"] = info
    assert await store.manifests("h") == []


async def test_times_and_sizes_that_cannot_be(store, content):
    content.infos[A] = pb.Info(digest=A, size=-5)
    content.infos[A].created_at.seconds = 1 << 60
    [found] = await store.blobs([A])
    assert found.size == 0
    assert found.created == datetime(1970, 1, 1, tzinfo=UTC)


async def test_a_call_without_the_namespace_is_refused(content, tmp_path):
    async with content.serve(tmp_path / "c.sock") as endpoint, open_connection(endpoint) as way:
        with pytest.raises(CriError, match="namespace is required"):
            await ContainerdContent(connection=way).ingests()


async def test_another_runtime_has_no_content_store(tmp_path):
    server = aio.server()
    server.add_insecure_port(f"unix:{tmp_path / 'c.sock'}")
    await server.start()
    async with open_connection(str(tmp_path / "c.sock"), metadata=NAMESPACE) as way:
        store = ContainerdContent(connection=way)
        with pytest.raises(Unimplemented):
            await store.ingests()
        with pytest.raises(Unimplemented):
            await store.manifests("h")
    await server.stop(None)


async def test_a_runtime_that_is_down(tmp_path):
    async with open_connection(str(tmp_path / "none.sock"), metadata=NAMESPACE) as way:
        with pytest.raises(Unavailable):
            await ContainerdContent(connection=way).ingests()


async def test_a_store_that_hangs_is_given_up(content, tmp_path):
    content.hangs = True
    content.add_blob(A, size=5, created=NOW)
    async with content.serve(tmp_path / "c.sock") as endpoint, open_connection(endpoint, metadata=NAMESPACE) as way:
        with pytest.raises(CriError, match="took more than"):
            await ContainerdContent(connection=way, deadline=timedelta(milliseconds=50)).blobs([A])
