"""`serverTLSBootstrap` under a listener that runs: no certificate, the first one, and the next without a pause."""

import asyncio
import random
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.api.node import NodeAddress
from klet.certs.identity import CertificateTools, ServingRequestSettings, open_serving
from klet.certs.maker import AuthorityFiles, CertificateMaker
from klet.embedded.signer import ClusterSigner
from klet.journal.memory import MemoryJournal
from klet.kube.informer import InformerSettings
from klet.metrics import MetricRegistry
from klet.testing.clock import FastClock

PROMPTLY = 30
DAY = timedelta(days=1)


@asynccontextmanager
async def signing(cluster, pki):
    """Have a signer with the tests' authority at work; gives a client of the API server."""
    authority = AuthorityFiles(certificate_file=pki.pair("ca")[0], key_file=pki.pair("ca")[1])
    maker = CertificateMaker(clock=SystemClock())
    signer = ClusterSigner(api=cluster.api, maker=maker, authority=authority, lifetime=DAY)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(signer.run())
        try:
            yield InformerSettings(cluster.client, cluster.watcher, SystemClock(), random.Random(1))
        finally:
            task.cancel()


async def served_names(kubelet):
    async with kubelet.connected() as (_, writer):
        return writer.get_extra_info("ssl_object").getpeercert()["subjectAltName"]


async def test_an_expired_requested_certificate_is_not_shown(start, pki):
    now = SystemClock().now()
    async with start(certificate=None) as kubelet:
        await kubelet.contexts.use(*pki.pair("server"), until=now - DAY)
        with pytest.raises(OSError, match="INTERNAL_ERROR"):
            await kubelet.connect()
        await kubelet.contexts.use(*pki.pair("ca"), until=now + DAY)
        assert kubelet.contexts.current() is not None


async def test_requested_certificates_are_served_as_they_come(start, cluster, pki, tmp_path, logged):
    clock, threads = FastClock(), Threads(limit=1)
    tools = CertificateTools(
        registry=MetricRegistry(),
        maker=CertificateMaker(clock=clock),
        threads=threads,
        clock=clock,
        randomness=random.Random(1),
        recorder=MemoryJournal(clock=clock),
    )
    addresses = [NodeAddress(type="InternalIP", address="127.0.0.1")]
    settings = ServingRequestSettings(
        node_name="edge-1", directory=tmp_path / "pki", configured=None, allow_dns_only=False
    )
    async with start(certificate=None) as kubelet, signing(cluster, pki) as api, asyncio.timeout(PROMPTLY):
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
