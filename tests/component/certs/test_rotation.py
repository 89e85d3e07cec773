"""Certificates are renewed: the client's while connections are open, the server's as the node's addresses change."""

import asyncio
import base64
import random
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.threads import Threads
from klet.api.node import Node, NodeAddress
from klet.certs.errors import PairDamaged
from klet.certs.identity import (
    CertificateTools,
    ServingRequestSettings,
    build_identity_watch,
    open_identity,
    open_serving,
)
from klet.certs.maker import CertificateMaker
from klet.embedded.signer import SigningVerdict
from klet.journal.memory import MemoryJournal
from klet.kube.errors import CredentialError
from klet.kube.informer import InformerSettings
from klet.kube.kubeconfig import load_kubeconfig
from klet.kube.watch import Watcher, WatchScope
from klet.metrics import MetricRegistry
from klet.testing.clock import ManualClock

PROMPTLY = 30
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


@asynccontextmanager
async def running(*parts):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part.run()) for part in parts]
        try:
            async with asyncio.timeout(PROMPTLY):
                yield
        finally:
            for task in tasks:
                task.cancel()


async def test_the_first_certificate_comes_in_the_background_if_it_is_rotated(cluster, home, tools, connected):
    async with cluster.listening():
        home.write_bootstrap(cluster.server)
        async with open_identity(home.rotating, tools) as identity, connected(identity.access) as (client, _):
            assert str(home.current) in home.settings.kubeconfig.read_text()
            with pytest.raises(CredentialError, match=r"kubelet-client-current\.pem"):
                await client.list(Node)
            with identity.board.changes() as changes:
                async with cluster.signing(), running(*identity.parts):
                    await changes.get()
                await client.list(Node)
    (request,) = cluster.requests()
    assert request["metadata"]["name"].startswith("csr-")
    assert request["spec"]["username"] == "system:bootstrap:abcdef"


async def test_open_connections_change_to_the_new_certificate(cluster, home, tools, connected):
    async with cluster.listening():
        home.settle(cluster.server, cluster.authority.misfit)
        async with open_identity(home.rotating, tools) as identity, connected(identity.access) as (client, transport):
            await client.list(Node)
            watcher = Watcher(transport=transport, randomness=random.Random(1))
            stream = watcher.watch(Node, WatchScope(), with_list=True)
            await anext(stream)
            old = cluster.serials[-1]
            watch = build_identity_watch(identity, (transport,), tools)
            with identity.board.changes() as changes:
                async with cluster.signing(), running(*identity.parts, *watch):
                    await changes.get()
                    # The watch breaks off without any request of ours: its connection is the old one's.
                    with pytest.raises(Exception, match="connections are replaced"):
                        await anext(stream)
            await client.list(Node)
            new = cluster.serials[-1]
    # It was requested with the old certificate, which was still good.
    assert [each["spec"]["username"] for each in cluster.requests()] == ["system:node:edge-1"]
    assert old
    assert new
    assert old != new


async def test_a_pair_in_the_kubeconfig_itself_is_stored_and_replaced(cluster, home, tools, connected):
    async with cluster.listening(), cluster.signing():
        home.settle(cluster.server, cluster.authority.node)
        inline = base64.b64encode(home.current.read_bytes()).decode()
        moved = replace(home.rotating, bootstrap_kubeconfig=None, directory=home.directory / "other")
        home.write(moved.kubeconfig, cluster.server, **{"client-certificate-data": inline, "client-key-data": inline})
        async with open_identity(moved, tools) as identity:
            first = identity.board.pair
            assert identity.board.is_provisional
            with identity.board.changes() as changes:
                async with running(*identity.parts), connected(identity.access) as (client, _):
                    await client.list(Node)
                    second = await changes.get()
                    await client.list(Node)
    assert first.certificate != second.certificate
    assert not identity.board.is_provisional
    assert cluster.serials[-1] not in cluster.serials[:-3]


async def test_a_pair_in_the_kubeconfig_itself_does_where_nothing_can_be_stored(cluster, home, tools, connected):
    async with cluster.listening():
        home.settle(cluster.server, cluster.authority.node)
        inline = base64.b64encode(home.current.read_bytes()).decode()
        (home.directory / "file").touch()
        moved = replace(home.rotating, bootstrap_kubeconfig=None, directory=home.directory / "file" / "pki")
        home.write(moved.kubeconfig, cluster.server, **{"client-certificate-data": inline, "client-key-data": inline})
        async with open_identity(moved, tools) as identity, connected(identity.access) as (client, _):
            await client.list(Node)
    assert cluster.serials[-1]


async def test_files_that_the_kubeconfig_names_are_used_until_their_time(cluster, home, tools, connected):
    async with cluster.listening(), cluster.signing():
        home.settle(cluster.server, cluster.authority.node)
        files = home.directory / "client.crt", home.directory / "client.key"
        for path in files:
            path.write_bytes(home.current.read_bytes())
        moved = replace(home.rotating, bootstrap_kubeconfig=None, directory=home.directory / "other")
        named = {"client-certificate": str(files[0]), "client-key": str(files[1])}
        home.write(moved.kubeconfig, cluster.server, **named)
        async with open_identity(moved, tools) as identity, connected(identity.access) as (client, _):
            assert not identity.board.is_provisional
            await client.list(Node)
    assert not moved.directory.exists()


async def test_connections_outlive_a_pair_that_is_only_half_written(cluster, home, connected):
    async with cluster.listening():
        home.settle(cluster.server, cluster.authority.misfit)
        async with connected(load_kubeconfig(home.settings.kubeconfig)) as (client, transport):
            await client.list(Node)
            whole = home.current.read_bytes()
            home.current.write_bytes(whole[: len(whole) // 2])
            await client.list(Node)
            await transport.refresh()
            await client.list(Node)
            assert len(set(cluster.serials)) == 1
        async with connected(load_kubeconfig(home.settings.kubeconfig)) as (client, _):
            with pytest.raises(CredentialError, match="cannot be used"):
                await client.list(Node)


async def test_a_damaged_pair_in_force_is_named(cluster, home, tools):
    async with cluster.listening(), cluster.signing():
        home.settle(cluster.server, cluster.authority.node)
        home.current.resolve().write_text("nothing")
        with pytest.raises(PairDamaged, match=f"remove {home.current} to have a new one requested"):
            async with open_identity(home.rotating, tools):
                pass


@pytest.mark.parametrize("rotates", [True, False], ids=["rotated", "obtained once"])
async def test_a_link_that_leads_nowhere_counts_as_no_certificate(cluster, home, tools, connected, rotates):
    async with cluster.listening(), cluster.signing():
        home.settle(cluster.server, cluster.authority.node)
        home.current.resolve().unlink()
        settings = home.rotating if rotates else home.settings
        async with open_identity(settings, tools) as identity, running(*identity.parts):
            if identity.board is not None:
                with identity.board.changes() as changes:
                    if identity.board.pair is None:
                        await changes.get()
            async with connected(identity.access) as (client, _):
                await client.list(Node)
    assert home.current.is_symlink()
    assert home.current.exists()


async def test_a_server_that_is_away_at_the_deadline_is_asked_until_it_is_back(cluster, home, tools, connected):
    async with cluster.listening():
        home.settle(cluster.server, cluster.authority.misfit)
    async with open_identity(home.rotating, tools) as identity, running(*identity.parts):
        before = identity.board.pair
        with tools.recorder.follow() as news:
            while (await news.get()).finding.decision != "CertificateNotRenewed":
                pass
        assert identity.board.pair is before
        assert not identity.board.is_server_well
        async with cluster.listening(), cluster.signing(), connected(identity.access) as (client, _):
            with identity.board.changes() as changes:
                assert await changes.get() != before
            await client.list(Node)
    story = [cause.finding.decision for cause in tools.recorder.all()]
    assert story[-1] == "CertificateInForce"
    assert story.count("CertificateNotRenewed") == 1


class Shelf:
    """What a server has to use."""

    def __init__(self):
        self.pairs = asyncio.Queue()

    async def use(self, certificate_file, key_file, *, until):
        assert certificate_file == key_file
        self.until = until
        self.pairs.put_nowait(certificate_file)


class Served:
    """A serving certificate on a clock that stands still, and the addresses it is for."""

    def __init__(self, cluster, home, client, transport):
        self.clock = ManualClock()
        self.maker = CertificateMaker(clock=self.clock)
        self.threads = Threads(limit=1)
        self.addresses = ()
        self.shelf = Shelf()
        watcher = Watcher(transport=transport, randomness=random.Random(1))
        self.api = InformerSettings(client, watcher, self.clock, random.Random(1))
        self.home = home
        self.cluster = cluster

    def set_addresses(self, **addresses):
        self.addresses = tuple(NodeAddress(type=kind, address=address) for kind, address in addresses.items())

    async def open(self):
        return await open_serving(
            ServingRequestSettings(
                node_name="edge-1", directory=self.home.settings.directory, configured=None, allow_dns_only=False
            ),
            addresses=lambda: self.addresses,
            api=self.api,
            user=self.shelf,
            tools=CertificateTools(
                registry=MetricRegistry(),
                maker=self.maker,
                threads=self.threads,
                clock=self.clock,
                randomness=random.Random(1),
                recorder=MemoryJournal(clock=self.clock),
            ),
        )

    async def next_names(self):
        path = await self.shelf.pairs.get()
        facts = await self.maker.describe(path.read_text())
        return facts.dns_names, facts.ips


@pytest.fixture
async def served(cluster, home, tools, connected):
    async with cluster.listening():
        home.settle(cluster.server, cluster.authority.node)
        async with open_identity(home.settings, tools) as identity, connected(identity.access) as (client, transport):
            made = Served(cluster, home, client, transport)
            yield made
            made.threads.close()


async def test_a_serving_certificate_follows_the_addresses_of_the_node(served, cluster):
    parts = await served.open()
    async with cluster.signing(maker=served.maker), running(*parts):
        await served.clock.until_asleep()
        assert cluster.requests() == []
        served.set_addresses(Hostname="edge-1", InternalIP="10.0.0.1")
        served.clock.advance(SECOND)
        assert await served.next_names() == (("edge-1",), ("10.0.0.1",))
        (request,) = cluster.requests()
        assert (request["spec"]["signerName"], request["spec"]["usages"], request["spec"]["username"]) == (
            "kubernetes.io/kubelet-serving",
            ["digital signature", "server auth"],
            "system:node:edge-1",
        )
        await served.clock.until_asleep()
        served.set_addresses(Hostname="edge-1", InternalIP="10.0.0.1", ExternalIP="2001:db8::1")
        served.clock.advance(SECOND)
        assert await served.next_names() == (("edge-1",), ("10.0.0.1", "2001:db8::1"))
        await served.clock.until_asleep()
        # It still names the address that has gone: that is fine.
        served.set_addresses(Hostname="edge-1", InternalIP="10.0.0.1")
        served.clock.advance(SECOND)
        await served.clock.until_asleep()
        assert len(cluster.requests()) == 2


async def test_a_serving_certificate_is_renewed_at_its_deadline_and_survives_a_restart(served, cluster):
    served.set_addresses(Hostname="edge-1", InternalIP="10.0.0.1")
    async with cluster.signing(maker=served.maker, lifetime=10 * DAY):
        parts = await served.open()
        async with running(*parts):
            await served.next_names()
            await served.clock.until_asleep()
        served.clock.advance(6 * DAY)
        again = await served.open()
        async with running(*again):
            await served.next_names()
            await served.clock.until_asleep()
            assert len(cluster.requests()) == 1
            served.clock.advance(3 * DAY + timedelta(hours=1))
            await served.next_names()
            assert len(cluster.requests()) == 2


async def test_a_request_for_addresses_that_changed_is_not_waited_for(served, cluster):
    served.set_addresses(InternalIP="10.0.0.1")
    parts = await served.open()
    async with running(*parts):
        async with cluster.signing(decide=lambda _: SigningVerdict.LEAVE):
            await cluster.until_requests(1)
            # The request, the patience with it, and the look at the addresses.
            await served.clock.until_asleep(2)
            served.set_addresses(InternalIP="10.0.0.2")
            served.clock.advance(SECOND)
        await served.clock.until_asleep()
        left = {each["metadata"]["name"] for each in cluster.requests()}

        def decide(request):
            return SigningVerdict.LEAVE if request.metadata.name in left else SigningVerdict.SIGN

        async with cluster.signing(maker=served.maker, decide=decide):
            served.clock.advance(3 * SECOND)
            assert await served.next_names() == ((), ("10.0.0.2",))
