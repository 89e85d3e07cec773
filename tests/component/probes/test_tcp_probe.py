"""TCP probes on loopback."""

import asyncio
from datetime import timedelta

from klet.api.handlers import Probe, TCPSocketAction
from klet.probes.handler import ProbeAnswer, ProbeOutcome


def tcp(port, **given):
    return Probe(tcp_socket=TCPSocketAction(port=port, **given))


async def test_an_open_port(serve, prober, target):
    async with serve(b"") as (port, seen):
        assert await prober.prepare(target(tcp(port)))() == ProbeOutcome(ProbeAnswer.SUCCESS)
        assert await prober.prepare(target(tcp(port, host="localhost")))() == ProbeOutcome(ProbeAnswer.SUCCESS)
    assert seen == []


async def test_a_closed_port(prober, target, closed_port):
    why = f"dial tcp 127.0.0.1:{closed_port}: connect: connection refused"
    assert await prober.prepare(target(tcp(closed_port)))() == ProbeOutcome(ProbeAnswer.FAILURE, why)


async def test_a_port_that_sends_nothing(prober, target, full_backlog):
    outcome = await prober.prepare(target(tcp(full_backlog), timeout=timedelta(milliseconds=100)))()
    assert outcome == ProbeOutcome(ProbeAnswer.FAILURE, f"dial tcp 127.0.0.1:{full_backlog}: i/o timeout")


async def test_a_host_that_does_not_exist(prober, target):
    outcome = await prober.prepare(target(tcp(80, host="a..b")))()
    assert outcome == ProbeOutcome(ProbeAnswer.FAILURE, "dial tcp: lookup a..b: no such host")


async def test_a_port_that_makes_no_sense(prober, target):
    assert await prober.prepare(target(tcp("db")))() == ProbeOutcome(
        ProbeAnswer.UNKNOWN, error='strconv.Atoi: parsing "db": invalid syntax'
    )


async def test_a_probe_without_a_handler(prober, target):
    error = "missing probe handler for pod_default(uid-1):main"
    assert await prober.prepare(target(Probe()))() == ProbeOutcome(ProbeAnswer.UNKNOWN, error=error)


async def test_what_a_server_says_is_not_read(prober, target):
    class Talker(asyncio.Protocol):
        def connection_made(self, transport):
            transport.write(b"x" * 10_000_000)

    server = await asyncio.get_running_loop().create_server(Talker, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await prober.prepare(target(tcp(port)))() == ProbeOutcome(ProbeAnswer.SUCCESS)
