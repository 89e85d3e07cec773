"""Log lines on pipes and files: nothing waits for a reader, nothing is lost while there is one."""

import os
import threading
import tracemalloc

import pytest

from klet.agent_log.output import MOST_HELD, BufferedStream, DescriptorStream

LINE = b"x" * 99 + b"\n"


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    ends = {reader, writer}
    yield reader, writer, ends
    join_writers()
    for end in ends:
        os.close(end)


def stream_on(descriptor, **options):
    return DescriptorStream(descriptor, describe_loss=lambda count: b"lost %d\n" % count, **options)


def read_all(reader, until):
    """Read until a text has come, as a slow reader."""
    os.set_blocking(reader, True)
    found = bytearray()
    while until not in found[-len(until) - (1 << 16) :]:
        found += os.read(reader, 1 << 16)
    return bytes(found)


def writers():
    return [thread for thread in threading.enumerate() if thread.name == "klet-log"]


def join_writers():
    for thread in writers():
        thread.join(timeout=30)
    assert writers() == []


def test_a_line_is_written_at_once_by_the_caller(pipe):
    reader, writer, _ = pipe
    stream_on(writer).write(b"one\n")
    assert os.read(reader, 100) == b"one\n"
    assert writers() == []


def test_a_long_line_is_written_whole(pipe):
    reader, writer, _ = pipe
    stream_on(writer).write(b"a" * 20_000 + b"\n")
    assert os.read(reader, 1 << 16) == b"a" * 20_000 + b"\n"


def test_a_full_pipe_holds_up_nobody_and_a_late_reader_gets_every_line_in_order(pipe):
    reader, writer, _ = pipe
    stream = stream_on(writer)
    for number in range(5000):
        stream.write(b"%099d\n" % number)
    stream.write(b"the end\n")
    lines = read_all(reader, b"the end\n").splitlines()
    assert [int(line) for line in lines[:-1]] == [*range(5000)]
    join_writers()
    stream.write(b"again\n")
    assert read_all(reader, b"again\n") == b"again\n"


def test_a_long_buffer_is_not_copied_for_every_piece_of_it(pipe):
    reader, writer, _ = pipe
    stream, line = stream_on(writer), b"a" * (16 << 20) + b"\n"
    tracemalloc.start()
    try:
        stream.write(line)
        assert tracemalloc.get_traced_memory()[1] < len(line) // 2
    finally:
        tracemalloc.stop()
    assert len(read_all(reader, b"\n")) == len(line)


def test_what_is_too_much_is_dropped_and_counted(pipe):
    reader, writer, _ = pipe
    stream = stream_on(writer)
    count = (MOST_HELD + (1 << 20)) // len(LINE)
    for _ in range(count):
        stream.write(LINE)
    found = read_all(reader, b"lost")
    found += b"" if found.endswith(b"\n") else read_all(reader, b"\n")
    *kept, report = found.splitlines(keepends=True)
    assert {*kept} == {LINE}
    assert report == b"lost %d\n" % (count - len(kept))
    assert MOST_HELD <= len(kept) * len(LINE) < MOST_HELD + (1 << 18)


def test_the_end_waits_for_a_reader_that_reads(pipe):
    reader, writer, _ = pipe
    stream = stream_on(writer)
    for _ in range(5000):
        stream.write(LINE)
    found = []
    thread = threading.Thread(target=lambda: found.append(read_all(reader, b"the end\n")))
    stream.write(b"the end\n")
    thread.start()
    stream.finish()
    thread.join(timeout=10)
    assert found[0].count(LINE) == 5000


def test_the_end_does_not_wait_for_ever_for_one_that_does_not(pipe):
    reader, writer, _ = pipe
    stream = stream_on(writer, last_wait=0.3)
    for _ in range(5000):
        stream.write(LINE)
    stream.finish()
    read_all(reader, LINE)
    stream.write(b"the end\n")
    read_all(reader, b"the end\n")


def test_a_reader_that_is_gone_is_no_error(pipe):
    reader, writer, ends = pipe
    stream = stream_on(writer)
    for _ in range(1000):
        stream.write(LINE)
    os.close(reader)
    ends.discard(reader)
    for _ in range(1000):
        stream.write(LINE)
    stream.finish()
    join_writers()


def test_a_file_takes_everything(tmp_path):
    path = tmp_path / "log"
    with path.open("ab") as file:
        stream = stream_on(file.fileno())
        stream.write(b"a" * 3_000_000 + b"\n")
        stream.write(b"b\n")
    assert path.stat().st_size == 3_000_003


class Kept:
    def __init__(self):
        self.writes = []
        self.arrived = threading.Event()
        self.is_finished = False

    def write(self, line):
        self.writes.append(line)
        self.arrived.set()

    def flush(self):
        raise AssertionError("a buffer has nothing to flush below it")

    def finish(self):
        self.is_finished = True


def test_a_buffer_passes_on_whole_lines_when_it_is_full():
    below = Kept()
    stream = BufferedStream(below, size=10, flush_every=5)
    stream.write(b"1234\n")
    stream.write(b"5678\n")
    assert below.writes == []
    stream.write(b"9\n")
    assert below.writes == [b"1234\n5678\n"]
    stream.finish()
    assert below.writes == [b"1234\n5678\n", b"9\n"]
    assert below.is_finished


def test_a_line_longer_than_the_buffer_keeps_its_place():
    below = Kept()
    stream = BufferedStream(below, size=10, flush_every=5)
    stream.write(b"1\n")
    stream.write(b"a" * 20 + b"\n")
    stream.write(b"2\n")
    stream.flush()
    assert below.writes == [b"1\n", b"a" * 20 + b"\n", b"2\n"]
    stream.flush()
    assert len(below.writes) == 3


@pytest.mark.parametrize("flush_every", [pytest.param(0.01, id="soon"), pytest.param(1e12, id="never in a lifetime")])
def test_a_buffer_is_flushed_regularly_until_its_end(flush_every):
    below = Kept()
    stream = BufferedStream(below, size=1000, flush_every=flush_every)
    stream.start()
    stream.write(b"one\n")
    if flush_every < 1:
        assert below.arrived.wait(10)
    stream.finish()
    assert below.writes == [b"one\n"]
    for thread in threading.enumerate():
        if thread.name == "klet-log-flush":
            thread.join(timeout=10)
            assert not thread.is_alive()
