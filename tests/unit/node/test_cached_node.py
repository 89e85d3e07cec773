"""Which Node pods are checked against."""

import pytest
from msgspec.structs import replace

from klet.api.codec import convert
from klet.api.node import Node
from klet.errors import KletError
from klet.node.cached_node import CachedNode


def a_node(version="", labels=None, **allocatable):
    metadata = {"name": "n", "resourceVersion": version, "labels": labels or {}}
    return convert(Node, {"metadata": metadata, "status": {"allocatable": allocatable}})


INITIAL = a_node(cpu="2", pods="110")


class Cluster:
    """An API server, and what the agent has seen of its Node."""

    def __init__(self, seen=None, now=None):
        self.seen, self.now = seen, now

    async def read(self):
        if self.now is None:
            raise KletError("the API server does not answer")
        return self.now

    def node(self, initial=INITIAL):
        return CachedNode(find=lambda: self.seen, fetcher=self, initial=initial)


def test_before_the_node_is_there_the_initial_one_counts():
    assert Cluster().node().known() is INITIAL


def test_the_node_of_the_api_server_counts():
    seen = a_node("5", cpu="1")
    assert Cluster(seen).node().known() is seen


def test_a_node_without_a_status_has_what_it_will_have():
    known = Cluster(a_node("5", labels={"disk": "ssd"})).node().known()
    assert known.metadata.labels == {"disk": "ssd"}
    assert known.status.allocatable == INITIAL.status.allocatable


def test_nothing_is_known_of_a_machine_that_cannot_be_read():
    assert Cluster().node(a_node()).known() is None


async def test_without_an_api_server_there_is_nothing_newer():
    node = CachedNode(find=lambda: None, fetcher=None, initial=INITIAL)
    assert await node.fetch() is INITIAL


async def test_an_api_server_that_does_not_answer():
    with pytest.raises(KletError, match="does not answer"):
        await Cluster(INITIAL).node().fetch()


@pytest.mark.parametrize(
    ("seen", "counts"),
    [
        pytest.param("6", "fetched", id="what was fetched is newer than what is seen"),
        pytest.param("7", "fetched", id="it is the same"),
        pytest.param("8", "seen", id="something newer was seen since"),
        pytest.param("opaque", "seen", id="nobody knows which is newer"),
    ],
)
async def test_what_was_fetched_counts_until_something_newer_is_seen(seen, counts):
    cluster = Cluster(a_node("6", cpu="1"), a_node("7", cpu="1"))
    node = cluster.node()
    assert await node.fetch() is cluster.now
    cluster.seen = replace(cluster.seen, metadata=replace(cluster.seen.metadata, resource_version=seen))
    assert node.known() is (cluster.now if counts == "fetched" else cluster.seen)


async def test_what_was_fetched_is_forgotten_once_something_newer_was_seen():
    cluster = Cluster(a_node("6", cpu="1"), a_node("7", cpu="1"))
    node = cluster.node()
    await node.fetch()
    cluster.seen = a_node("8", cpu="1")
    assert node.known() is cluster.seen
    cluster.seen = None
    assert node.known() is INITIAL
