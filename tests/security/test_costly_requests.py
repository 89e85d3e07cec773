"""Requests that cost the agent far more than they are long: a client that can connect sends as many as they like."""

import asyncio
import os
import zlib
from pathlib import Path

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")

REQUESTS = 8
SECONDS = 1.0
"""Of processor time for all of them together. Paths of 60,000 slashes took 0.7 s each."""
LAST = b"GET /healthz HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n"
PACKED = zlib.compress(bytes(60 << 20), 9)


def get(target):
    return b"GET %b HTTP/1.1\r\nHost: n\r\n\r\n" % target


def processor_time(agent):
    fields = Path(f"/proc/{agent.process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(get(b"/" * 60_000), id="a path of slashes"),
        pytest.param(get(b"/healthz" + b"/.." * 20_000), id="a path of dots"),
        pytest.param(get(b"http://x" + b"/" * 60_000), id="a whole URL of slashes"),
        pytest.param(
            b"POST /pods HTTP/1.1\r\nHost: n\r\nContent-Encoding: deflate\r\nContent-Length: %d\r\n\r\n%b"
            % (len(PACKED), PACKED),
            id="a packed body",
        ),
    ],
)
async def test_the_cost_of_an_unauthenticated_request_is_linear_in_its_length(node_api, request_):
    for port in (node_api.port, node_api.healthz_port, node_api.read_only_port):
        before = processor_time(node_api.agent)
        for _ in range(REQUESTS):
            assert (await node_api.send(request_ + LAST, who=None, port=port)).startswith(b"HTTP/1.1 4")
        assert processor_time(node_api.agent) - before < SECONDS


@pytest.mark.parametrize("target", [b"http://xn--a.xn--/healthz", b"http://[::1/healthz", b"http://x:99999999/healthz"])
async def test_no_host_in_a_target_leaves_a_client_without_an_answer(node_api, target):
    async with asyncio.timeout(20):
        said = await node_api.send(get(target) + LAST, who=None, port=node_api.healthz_port)
    assert said.count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(b"FOO /healthz HTTP/1.1\r\nHost: n\r\n\r\n", id="a method that does not exist"),
        pytest.param(get(b"x"), id="no path"),
        pytest.param(get(b"*"), id="the whole server"),
        pytest.param(b"POST /healthz HTTP/1.1\r\nHost: n\r\nContent-Encoding: br\r\n\r\n", id="an encoding"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: n\r\nSec-WebSocket-Key1: x\r\n\r\n", id="an old WebSocket"),
    ],
)
async def test_no_response_names_the_program_of_the_server(node_api, request_):
    for port in (node_api.port, node_api.healthz_port):
        said = await node_api.send(request_ + LAST, who=None, port=port)
        assert said.startswith(b"HTTP/1.1 ")
        assert b"server:" not in said.lower()
