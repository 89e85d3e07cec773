"""The node's file, read for each pod, and what is recorded about it."""

import pytest
from msgspec.structs import replace

from klet.aio.threads import Threads
from klet.journal.memory import MemoryJournal
from klet.journal.records import CauseQuery
from klet.model.network import DnsConfig
from klet.network.dns import DnsSettings, ResolvConfError
from klet.network.resolver import PodResolver
from klet.testing.builders import make_pod
from klet.testing.clock import ManualClock

POD = make_pod()
BARE = DnsSettings()


class Bench:
    """A resolver over a file, with a journal."""

    def __init__(self, tmp_path, threads: Threads) -> None:
        self.path = tmp_path / "resolv.conf"
        self.journal = MemoryJournal(clock=ManualClock())
        self._threads = threads

    def resolver(self, *, has_file: bool = True, settings: DnsSettings = BARE) -> PodResolver:
        path = self.path if has_file else None
        return PodResolver(resolv_conf=path, settings=settings, threads=self._threads, recorder=self.journal)

    async def decisions(self) -> list[tuple[str, str]]:
        causes = await self.journal.find(CauseQuery())
        return [(cause.finding.decision, cause.finding.subject.name) for cause in causes]


@pytest.fixture
def bench(tmp_path):
    threads = Threads(limit=1)
    yield Bench(tmp_path, threads)
    threads.close()


async def test_the_file_is_read_again_for_each_pod(bench):
    resolver = bench.resolver()
    bench.path.write_text("nameserver 1.1.1.1\n")
    assert await resolver.config_for(POD) == DnsConfig(("1.1.1.1",))
    bench.path.write_text("nameserver 2.2.2.2\n")
    assert await resolver.config_for(POD) == DnsConfig(("2.2.2.2",))
    assert await bench.decisions() == []


async def test_without_a_file_the_node_itself_answers(bench):
    assert await bench.resolver(has_file=False).config_for(POD) == DnsConfig(("127.0.0.1",), (".",))


@pytest.mark.parametrize("policy", ["Default", "None"])
async def test_an_unreadable_file_fails_every_pod(bench, policy):
    pod = replace(POD, spec=replace(POD.spec, dns_policy=policy))
    with pytest.raises(ResolvConfError, match=r"^Encountered error while parsing resolv conf file\. Error: "):
        await bench.resolver().config_for(pod)


async def test_a_broken_file_fails_every_pod(bench):
    bench.path.write_text("nameserver\n")
    with pytest.raises(ResolvConfError) as caught:
        await bench.resolver().config_for(POD)
    assert str(caught.value) == ("Encountered error while parsing resolv conf file. Error: nameserver list is empty ")


async def test_what_was_left_out_is_recorded_with_its_reason(bench):
    bench.path.write_text("nameserver 1\nnameserver 2\nnameserver 3\nnameserver 4\n")
    pod = replace(POD, spec=replace(POD.spec, dns_policy="ClusterFirst"))
    resolver = bench.resolver()
    await resolver.config_for(pod)
    assert await bench.decisions() == [("MissingClusterDNS", "pod"), ("DNSConfigForming", "pod")]
    # The next sync has nothing new to record; another pod has.
    await resolver.config_for(pod)
    assert len(await bench.decisions()) == 2
    await resolver.config_for(replace(pod, metadata=replace(pod.metadata, uid="other")))
    assert len(await bench.decisions()) == 4


async def test_what_is_too_much_of_the_nodes_file_is_reported_once(bench):
    bench.path.write_text(f"search {' '.join(f'd{n}' for n in range(40))}\n")
    pod = replace(POD, spec=replace(POD.spec, dns_policy="None"))
    resolver = bench.resolver()
    await resolver.config_for(pod)
    await resolver.config_for(pod)
    assert await bench.decisions() == [("CheckLimitsForResolvConf", "")]


async def test_a_broken_file_is_reported_about_the_node_once(bench):
    bench.path.write_text("nameserver\n")
    resolver = bench.resolver()
    for _ in range(2):
        with pytest.raises(ResolvConfError):
            await resolver.config_for(POD)
    assert await bench.decisions() == [("CheckLimitsForResolvConf", "")]
