"""The clients of one API server: none waits for what another one has used up."""

import asyncio
import random

from msgspec.structs import replace

from klet.api.authentication import TokenReview, TokenReviewSpec
from klet.api.config import ConfigMap
from klet.app.cluster.connection import connect_cluster
from klet.config.defaults import default_configuration
from klet.config.gates import resolve_gates
from klet.kube.access import Access, Login
from klet.server.auth.reviews import TOKEN_REVIEWS
from klet.testing.clock import ManualClock


async def test_reviews_take_nothing_from_the_requests_of_the_agent(cluster):
    await cluster.put("a")
    config = replace(default_configuration(resolve_gates({})), kube_api_qps=1, kube_api_burst=1)
    access = Access(server=f"http://127.0.0.1:{cluster.port}", login=Login(token="secret"))
    clock = ManualClock()  # stands still: a request that has to wait is never sent
    async with connect_cluster(access, config, clock=clock, randomness=random.Random(1)) as clients:
        for number in range(5):
            review = TokenReview(
                api_version="authentication.k8s.io/v1",
                kind="TokenReview",
                spec=TokenReviewSpec(token=f"token-{number}"),
            )
            async with asyncio.timeout(10):
                answer = await clients.reviews.review(TOKEN_REVIEWS, review)
            assert not answer.status.authenticated
        async with asyncio.timeout(10):
            await clients.main.get(ConfigMap, "a", "default")
