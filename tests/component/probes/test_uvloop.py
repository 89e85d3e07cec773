"""The same answers on uvloop, which the agent runs on: its transports raise other errors than asyncio's."""

from datetime import timedelta

import pytest
import uvloop

from klet.api.handlers import HTTPGetAction, Probe, TCPSocketAction

SHORT = timedelta(milliseconds=100)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"
BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\n\r\n"
WAITED = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"


@pytest.mark.parametrize(
    ("scheme", "reply", "has_tls", "holds", "want"),
    [
        pytest.param("HTTP", OK, False, False, "ok", id="an answer"),
        pytest.param("HTTPS", OK, True, False, "ok", id="an answer over TLS"),
        pytest.param("HTTP", b"", False, False, 'Get "{url}": EOF', id="the server hangs up"),
        pytest.param("HTTPS", b"", False, False, 'Get "{url}": EOF', id="the server hangs up during the handshake"),
        pytest.param("HTTP", b"", False, True, f'Get "{{url}}": {WAITED}', id="the server waits"),
        pytest.param("HTTPS", b"", False, True, f'Get "{{url}}": {WAITED}', id="the handshake waits"),
        pytest.param("HTTP", HALF, False, False, "unexpected EOF", id="half a body"),
        pytest.param(
            "HTTPS",
            BAD_REQUEST,
            False,
            False,
            'Get "{url}": http: server gave HTTP response to HTTPS client',
            id="a plain answer to a TLS client",
        ),
    ],
)
def test_http(serve, prober, target, server_tls, scheme, reply, has_tls, holds, want):
    async def main():
        async with serve(reply, holds=holds, tls=server_tls if has_tls else None) as (port, _):
            probe = Probe(http_get=HTTPGetAction(port=port, path="/", scheme=scheme))
            outcome = await prober.prepare(target(probe, timeout=timedelta(milliseconds=300)))()
            return outcome.output + outcome.error, want.format(url=f"{scheme.lower()}://127.0.0.1:{port}/")

    outcome, expected = uvloop.run(main())
    assert outcome == expected


def test_connecting(prober, target, closed_port, full_backlog):
    async def main():
        asked = [
            await prober.prepare(target(Probe(tcp_socket=TCPSocketAction(port=port, host=host)), timeout=SHORT))()
            for port, host in ((closed_port, ""), (full_backlog, ""), (80, "a..b"))
        ]
        http = Probe(http_get=HTTPGetAction(port=closed_port, path="/"))
        return [outcome.output for outcome in (*asked, await prober.prepare(target(http))())]

    refused = f"dial tcp 127.0.0.1:{closed_port}: connect: connection refused"
    assert uvloop.run(main()) == [
        refused,
        f"dial tcp 127.0.0.1:{full_backlog}: i/o timeout",
        "dial tcp: lookup a..b: no such host",
        f'Get "http://127.0.0.1:{closed_port}/": {refused}',
    ]
