"""Tokens and rights, asked for at a real API server."""

import asyncio
import random
from datetime import timedelta

import pytest
import uvloop

from klet.aio.clock import SystemClock
from klet.embedded.identities import ApiUser
from klet.embedded.server import build_api, serving
from klet.embedded.store import Store
from klet.kube.access import Access, Login
from klet.kube.client import KubeClient
from klet.kube.credentials import Credentials
from klet.kube.throttle import Unlimited
from klet.kube.transport import Transport
from klet.server.auth.access import AccessReviews, AccessSettings
from klet.server.auth.reviews import Retrying


class OnlyHealth:
    def allows(self, asked):
        return asked.user == "prober" and asked.resource_attributes.subresource == "healthz"


async def test_the_api_server_decides(start):
    clock = SystemClock()
    tokens = {"probe": ApiUser("prober"), "admin": ApiUser("admin", groups=("system:masters",))}
    store = Store.open()
    api = build_api(store=store, tokens=tokens, rights=OnlyHealth(), clock=clock)
    async with serving(api, host="127.0.0.1") as port:
        login = Login(token="admin")
        transport = Transport(
            access=Access(server=f"http://127.0.0.1:{port}", login=login),
            credentials=Credentials(login=login, clock=clock),
        )
        client = KubeClient(transport=transport, throttle=Unlimited(), timeout=timedelta(seconds=10), clock=clock)
        access = AccessReviews(
            reviewer=client,
            retrying=Retrying(clock=clock, randomness=random.Random(1)),
            settings=AccessSettings(
                node_name="node-1", keep_allowed=timedelta(minutes=5), keep_denied=timedelta(seconds=30)
            ),
            clock=clock,
        )
        async with start(reviewer=client, authorizer=access) as kubelet:
            for token, path, answer in (
                ("probe", "/healthz", (200, "ok")),
                (
                    "probe",
                    "/configz",
                    (403, "Forbidden (user=prober, verb=get, resource=nodes, subresource(s)=[configz proxy])\n"),
                ),
                ("admin", "/configz", (200, '{"kubeletconfig":{"port":10250}}')),
                ("nobody", "/healthz", (401, "Unauthorized")),
            ):
                headers = {"Authorization": f"Bearer {token}"}
                assert await kubelet.get(path, name=None, headers=headers) == answer
        await transport.close()
    store.close()


async def use_streams(start):
    async with start() as kubelet:
        assert await kubelet.get("/healthz") == (200, "ok")
        async with kubelet.connected() as (reader, writer):
            head = b"POST /exec/default/web/main?output=1 HTTP/1.1\r\nHost: n\r\n"
            head += b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n" + head)
            await reader.readuntil(b"Upgrade: SPDY/3.1\r\n\r\n")
            content = random.Random(1).randbytes(3 << 20)

            async def send():
                for start_ in range(0, len(content), 1 << 16):
                    writer.write(content[start_ : start_ + (1 << 16)])
                    await writer.drain()

            async with asyncio.TaskGroup() as group:
                group.create_task(send())
                assert await reader.readexactly(len(content)) == content
            writer.transport.abort()
            await kubelet.streamer.ended.wait()


@pytest.mark.parametrize("make_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_connections_on_both_event_loops(start, make_loop):
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(use_streams(start))
