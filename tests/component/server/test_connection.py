"""Clients that send too much, too slowly, or nonsense."""

import asyncio
import logging
from contextlib import suppress
from datetime import timedelta

import pytest

from klet.server.connection import RequestLimits
from klet.server.listener import ListenerLimits

PROMPTLY = 10
HASTY = ListenerLimits(request=RequestLimits(request_time=timedelta(milliseconds=50)))


async def until_the_end(kubelet, *pieces):
    async with kubelet.connected() as (reader, writer):
        for piece in pieces:
            writer.write(piece)
        return await reader.read()


async def test_a_head_that_comes_too_slowly_is_not_waited_for(start):
    async with start(limits=HASTY) as kubelet:
        answer = await until_the_end(kubelet, b"GET /healthz HTTP/1.1\r\nHost: ")
        assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert await kubelet.get("/healthz") == (200, "ok")


async def test_also_the_second_head_of_a_connection(start):
    async with start(limits=HASTY) as kubelet:
        answer = await until_the_end(kubelet, b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\nGET /heal")
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"HTTP/1.1 408 Request Timeout\r\n" in answer


async def test_a_head_byte_by_byte(kubelet):
    async with kubelet.connected() as (reader, writer):
        for byte in b"\r\nGET /healthz HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n":
            writer.write(bytes([byte]))
            await writer.drain()
        assert (await reader.read()).endswith(b"\r\n\r\nok")


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param(b"GET /healthz HTTP/1.1\r\nX: " + b"a" * (1 << 21), id="one header without end"),
        pytest.param(b"GET /healthz HTTP/1.1\r\n" + b"A: b\r\n" * (1 << 18) + b"\r\n", id="very many headers"),
        pytest.param(b"GET /" + b"a" * (1 << 21), id="a path without end"),
        pytest.param(b"a" * (1 << 21), id="no line at all"),
    ],
)
async def test_floods_are_cut_off(kubelet, flood):
    async with kubelet.connected() as (reader, writer):
        writer.write(flood)
        try:
            answer = await reader.read()
        except ConnectionResetError:
            answer = b""  # it was still writing
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert await kubelet.get("/healthz") == (200, "ok")


async def test_large_headers_below_the_limit_are_fine(kubelet):
    assert await kubelet.get("/healthz", headers={"X-Large": "a" * 60_000}) == (200, "ok")
    many = {f"X-{number}": "a" for number in range(90)}
    assert await kubelet.get("/healthz", headers=many) == (200, "ok")


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(
            b"GET /healthz HTTP/1.1\r\nHost: n\r\nX:" + b" " * 60_000 + b"\x00\r\n\r\n", id="spaces and a NUL"
        ),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: n\r\nX:" + b" " * 60_000 + b"\x0b\r\n\r\n", id="spaces and a VT"),
        pytest.param(
            b"GET /healthz HTTP/1.1\r\nHost: n\r\nX: a" + b" " * 60_000 + b"\rb\r\n\r\n", id="spaces and a CR"
        ),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: n\r\n" + b"A:b\r\n" * 200_000, id="200,000 tiny headers"),
    ],
)
async def test_a_hostile_head_does_not_hold_the_loop(kubelet, head):
    """On the code before, 40,000 spaces took 8 s: here they would take more than the deadline of the whole test."""
    for _ in range(20):
        async with kubelet.connected() as (reader, writer):
            writer.write(head)
            with suppress(ConnectionResetError):  # it was still writing
                assert (await reader.readline()).split(b" ")[1] in {b"400", b"431"}


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(b"GET /pods HTTP/1.1\r\nno header\r\n\r\n", id="a header without a colon"),
        pytest.param(b"GET /pods HTTP/9.9.9\r\n\r\n", id="a version that does not exist"),
        pytest.param(b"POST /pods HTTP/1.1\r\nHost: n\r\nContent-Length: no\r\n\r\n", id="a length that is no number"),
        pytest.param(
            b"POST /pods HTTP/1.1\r\nHost: n\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            id="a body with two ends",
        ),
        pytest.param(b"\x00\x01\x02\r\n\r\n", id="bytes"),
    ],
)
async def test_nonsense_is_refused(kubelet, request_, caplog):
    answer = await until_the_end(kubelet, request_)
    assert answer.split(b" ")[1] == b"400"
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert await kubelet.get("/healthz") == (200, "ok")


async def test_chunks_without_a_length_do_not_keep_the_answer(kubelet):
    async with kubelet.connected() as (reader, writer):
        writer.write(b"POST /pods HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 4")
    assert await kubelet.get("/healthz") == (200, "ok")


async def test_a_strange_expectation_ends_the_connection(kubelet):
    plain = b"GET /healthz HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n"
    answer = await until_the_end(kubelet, b"GET /healthz HTTP/1.1\r\nHost: n\r\nExpect: wonders\r\n\r\n" + plain)
    assert answer.startswith(b"HTTP/1.1 417 ")
    assert b"HTTP/1.1 200 OK" not in answer


async def test_many_pipelined_requests(kubelet):
    count = 2_000
    async with kubelet.connected() as (reader, writer):
        writer.write(b"GET /healthz/ping HTTP/1.1\r\nHost: n\r\n\r\n" * count)
        for _ in range(count):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert await reader.readexactly(2) == b"ok"


async def test_a_body_that_nobody_wants(kubelet):
    async with kubelet.connected() as (reader, writer):
        writer.write(b"POST /pods HTTP/1.1\r\nHost: n\r\nContent-Length: 60000\r\n\r\n" + b"x" * 60_000)
        assert (await reader.readline()).startswith(b"HTTP/1.1 405 ")


async def test_a_large_body_is_refused(kubelet):
    async with kubelet.connected() as (reader, writer):
        size = 4 << 20
        writer.write(b"POST /pods HTTP/1.1\r\nHost: n\r\nContent-Length: %d\r\n\r\n" % size)
        writer.write(b"x" * size)
        with suppress(ConnectionResetError):  # it was still writing
            assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
    assert await kubelet.get("/healthz") == (200, "ok")


async def test_hundreds_of_connections_that_say_nothing(kubelet):
    open_ = [await asyncio.open_connection("127.0.0.1", kubelet.port) for _ in range(300)]
    assert await kubelet.get("/healthz") == (200, "ok")
    for _, writer in open_:
        writer.close()
        await writer.wait_closed()


async def test_a_body_that_an_upgrade_announces_and_that_does_not_come(start):
    async with start(limits=HASTY) as kubelet:
        head = b"POST /exec/default/web/main?output=1 HTTP/1.1\r\nHost: n\r\n"
        headers = b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 5\r\n\r\n"
        answer = await until_the_end(kubelet, head + headers + b"hal")
        assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
