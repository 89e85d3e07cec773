"""The profile of CPU time: what the sampler counts, and what is written of it."""

import gzip
import sys
import threading
from datetime import timedelta

import pytest

from klet.aio.clock import SystemClock
from klet.host.own_threads import OwnThread, read_own_threads
from klet.server.pprof_profile import ProfiledFunction, ProfiledStack, ProfileFacts, encode_profile
from klet.server.profiler import SamplingProfiler


def fields(data):
    """Decode a message of protobuf: numbers of fields and values."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        else:
            length = varint()
            yield tag >> 3, data[at : at + length]
            at += length


def every(data, number):
    return [value for field, value in fields(data) if field == number]


def numbers(data):
    """The values of a packed field."""
    return [value for _, value in fields(b"".join(b"\x08" + each for each in split_varints(data)))]


def split_varints(data):
    piece = b""
    for byte in data:
        piece += bytes([byte])
        if byte < 0x80:
            yield piece
            piece = b""


def test_a_profile_can_be_read_again():
    places = [
        ProfiledFunction("f", "a.py", 1, 3),
        ProfiledFunction("g", "a.py", 7, 9),
        ProfiledFunction("f", "a.py", 1, 4),
    ]
    stacks = [ProfiledStack(places=(0, 1), thread="main", count=300, nanoseconds=2**40)]
    profile = gzip.decompress(encode_profile(ProfileFacts(started=5, duration=6, period=7), places, stacks))
    texts = [each.decode() for each in every(profile, 6)]
    assert texts[0] == ""
    assert [(texts[dict(fields(each))[1]], texts[dict(fields(each))[2]]) for each in every(profile, 1)] == [
        ("samples", "count"),
        ("cpu", "nanoseconds"),
    ]
    [sample] = every(profile, 2)
    assert (numbers(every(sample, 1)[0]), numbers(every(sample, 2)[0])) == ([1, 2], [300, 2**40])
    functions = {dict(fields(each))[1]: texts[dict(fields(each))[2]] for each in every(profile, 5)}
    assert functions == {1: "f", 2: "g"}
    lines = [dict(fields(every(each, 4)[0])) for each in every(profile, 4)]
    assert lines == [{1: 1, 2: 3}, {1: 2, 2: 9}, {1: 1, 2: 4}]
    assert (every(profile, 9), every(profile, 10), every(profile, 12)) == ([5], [6], [7])


async def test_time_is_charged_to_the_function_that_spends_it():
    ended = threading.Event()

    def spend_time_here():
        while not ended.is_set():
            sum(range(1000))

    before, spender = sys.getswitchinterval(), threading.Thread(target=spend_time_here, name="spender")
    spender.start()
    try:
        data = gzip.decompress(await SamplingProfiler(clock=SystemClock()).record(timedelta(seconds=0.5)))
    finally:
        ended.set()
        spender.join()
    texts = [each.decode() for each in every(data, 6)]
    assert any("spend_time_here" in each for each in texts)
    assert {"spender", "thread"} <= set(texts)
    assert sys.getswitchinterval() == pytest.approx(before)


def test_threads_of_this_process(tmp_path):
    own = read_own_threads()[threading.get_native_id()]
    assert own.nanoseconds > 0
    task = tmp_path / "7"
    task.mkdir()
    (task / "comm").write_text("name\n")
    (task / "stat").write_text("7 (a) b) S 1 1 1 0 0 0 0 0 0 0 25 50 0 0")
    (tmp_path / "8").mkdir()
    assert read_own_threads(tmp_path) == {7: OwnThread("name", 750_000_000)}
