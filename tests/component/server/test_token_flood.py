"""Tokens that nobody has issued, over the network: who is refused, who is served, and what a hang-up gives back."""

import asyncio

from msgspec.structs import replace

from klet.api.authentication import TokenReviewStatus
from klet.server.auth.reviews import ReviewLimits

ONE = ReviewLimits(at_once=1, rate=1000, burst=1000, queued=0)


class StuckApi:
    """Begins reviews of tokens, and ends them when the test says so."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.left: asyncio.Queue[str] = asyncio.Queue()
        self.may_answer = asyncio.Event()

    async def review(self, _path, body):
        self.begun.put_nowait(body.spec.token)
        try:
            await self.may_answer.wait()
        finally:
            self.left.put_nowait(body.spec.token)
        return replace(body, status=TokenReviewStatus())


def head(token: str) -> bytes:
    return f"GET /healthz HTTP/1.1\r\nHost: n\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


async def test_a_full_queue_is_refused_at_once_and_a_certificate_is_not_held_up(start):
    api = StuckApi()
    async with start(reviewer=api, review_limits=ONE) as kubelet, kubelet.connected(None) as (_, first):
        first.write(head("first"))
        assert await api.begun.get() == "first"
        headers = {"Authorization": "Bearer second"}
        async with kubelet.session(None) as session, session.get("/healthz", headers=headers) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        assert await kubelet.get("/healthz") == (200, "ok")


async def test_a_client_that_hangs_up_gives_back_its_turn(start):
    api = StuckApi()
    async with start(reviewer=api, review_limits=ONE) as kubelet:
        async with kubelet.connected(None) as (_, first):
            first.write(head("first"))
            assert await api.begun.get() == "first"
        assert await api.left.get() == "first"
        async with kubelet.connected(None) as (reader, second):
            second.write(head("second"))
            assert await api.begun.get() == "second"
            api.may_answer.set()
            assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
