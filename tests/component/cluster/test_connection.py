"""The clients of one API server: none waits for what another one has used up."""

import asyncio
import random

import pytest
from msgspec.structs import replace

from klet.api.authentication import TokenReview, TokenReviewSpec
from klet.api.config import ConfigMap
from klet.app.cluster.connection import connect_cluster
from klet.config.defaults import default_configuration
from klet.config.gates import resolve_gates
from klet.kube.access import Access, Login
from klet.kube.informer import Informer
from klet.kube.watch import WatchScope
from klet.server.auth.reviews import TOKEN_REVIEWS
from klet.testing.clock import ManualClock


@pytest.fixture
async def limited(cluster):
    """The clients of an agent that may send one request, and no other one while the clock stands still."""
    config = replace(default_configuration(resolve_gates({})), kube_api_qps=1, kube_api_burst=1)
    access = Access(server=f"http://127.0.0.1:{cluster.port}", login=Login(token="secret"))
    async with connect_cluster(access, config, clock=ManualClock(), randomness=random.Random(1)) as clients:
        yield clients


async def test_reviews_take_nothing_from_the_requests_of_the_agent(cluster, limited):
    await cluster.put("a")
    for number in range(5):
        review = TokenReview(
            api_version="authentication.k8s.io/v1",
            kind="TokenReview",
            spec=TokenReviewSpec(token=f"token-{number}"),
        )
        async with asyncio.timeout(10):
            answer = await limited.reviews.review(TOKEN_REVIEWS, review)
        assert not answer.status.authenticated
    async with asyncio.timeout(10):
        await limited.main.get(ConfigMap, "a", "default")


@pytest.mark.parametrize(
    "streams_lists",
    [
        pytest.param(True, id="that begin with a list in the stream"),
        pytest.param(False, id="that begin with a list of their own, as with an old API server"),
    ],
)
async def test_watches_are_not_limited_and_take_nothing_from_other_requests(cluster, limited, streams_lists):
    await cluster.put("a")
    limited.informers.watcher.streams_lists = streams_lists
    followed = [Informer(struct=ConfigMap, scope=WatchScope("default"), settings=limited.informers) for _ in range(5)]
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        tasks = [group.create_task(informer.run()) for informer in followed]
        for informer in followed:
            await informer.until_synced()
            assert informer.get("a", "default") is not None
        await limited.main.get(ConfigMap, "a", "default")
        for task in tasks:
            task.cancel()
