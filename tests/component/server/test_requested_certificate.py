"""`serverTLSBootstrap` under a listener that runs: no certificate, the first one, and the next without a pause."""

import asyncio
import random
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.api.node import NodeAddress
from klet.app.cluster.certificates import CertificateTools, ServingRequestSettings, open_serving
from klet.certs.maker import AuthorityFiles, CertificateMaker
from klet.embedded.identities import User
from klet.embedded.questions import Everything
from klet.embedded.server import build_api, serving
from klet.embedded.signer import ClusterSigner
from klet.embedded.store import Store
from klet.kube.access import Access, Login
from klet.kube.client import KubeClient
from klet.kube.credentials import Credentials
from klet.kube.informer import InformerSettings
from klet.kube.throttle import Unlimited
from klet.kube.transport import Transport
from klet.kube.watch import Watcher

PROMPTLY = 30
DAY = timedelta(days=1)


class HastyClock(SystemClock):
    async def sleep(self, duration):
        await super().sleep(duration / 20)


@asynccontextmanager
async def signing_cluster(pki):
    """An API server with a signer that has the tests' authority; gives a client of it."""
    clock, randomness = SystemClock(), random.Random(1)
    tokens = {"secret": User("system:node:edge-1", groups=("system:nodes",))}
    api = build_api(store=Store.open(), tokens=tokens, rights=Everything(), clock=clock)
    authority = AuthorityFiles(certificate_file=pki.pair("ca")[0], key_file=pki.pair("ca")[1])
    signer = ClusterSigner(api=api, maker=CertificateMaker(clock=clock), authority=authority, lifetime=DAY)
    async with serving(api, host="127.0.0.1") as port, asyncio.TaskGroup() as group:
        task = group.create_task(signer.run())
        access = Access(server=f"http://127.0.0.1:{port}", login=Login(token="secret"))
        transport = Transport(access=access, credentials=Credentials(login=access.login, clock=clock))
        client = KubeClient(transport=transport, throttle=Unlimited(), timeout=timedelta(seconds=10), clock=clock)
        watcher = Watcher(transport=transport, throttle=Unlimited(), randomness=randomness)
        try:
            yield InformerSettings(client, watcher, clock, randomness)
        finally:
            task.cancel()
            await transport.close()
    api.store.close()


async def served_names(kubelet):
    async with kubelet.connected() as (_, writer):
        return writer.get_extra_info("ssl_object").getpeercert()["subjectAltName"]


async def test_requested_certificates_are_served_as_they_come(start, pki, tmp_path, logged):
    clock, threads = HastyClock(), Threads(limit=1)
    tools = CertificateTools(
        maker=CertificateMaker(clock=clock), threads=threads, clock=clock, randomness=random.Random(1)
    )
    addresses = [NodeAddress(type="InternalIP", address="127.0.0.1")]
    settings = ServingRequestSettings(
        node_name="edge-1", directory=tmp_path / "pki", configured=None, allow_dns_only=False
    )
    async with start(certificate=None) as kubelet, signing_cluster(pki) as api, asyncio.timeout(PROMPTLY):
        with pytest.raises(OSError, match="INTERNAL_ERROR"):
            await kubelet.connect()
        parts = await open_serving(settings, addresses=lambda: addresses, api=api, user=kubelet.contexts, tools=tools)
        async with asyncio.TaskGroup() as group:
            async with logged("Serving with a certificate"):
                tasks = [group.create_task(part.run()) for part in parts]
            assert await served_names(kubelet) == (("IP Address", "127.0.0.1"),)
            async with kubelet.connected() as (reader, writer):
                async with logged("Serving with a certificate"):
                    addresses.append(NodeAddress(type="Hostname", address="edge-1"))
                assert await served_names(kubelet) == (("DNS", "edge-1"), ("IP Address", "127.0.0.1"))
                # A connection from before goes on.
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n")
                assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            for task in tasks:
                task.cancel()
    threads.close()
