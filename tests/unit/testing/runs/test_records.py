import msgspec
import pytest

from klet.testing.runs.records import (
    Begun,
    Collected,
    EndedTest,
    Finished,
    RecordReader,
    RunOutcome,
    Started,
    decode,
    encode,
)

EVENTS = [Started(), Collected(2, 60.0), Begun("a"), EndedTest("a", RunOutcome.SKIPPED, "no ü: why"), Finished(0)]


def test_a_record_is_read_as_it_grows(tmp_path):
    path = tmp_path / "record"
    reader = RecordReader(path)
    assert reader.read() == []
    first, rest = b"".join(map(encode, EVENTS[:2])), b"".join(map(encode, EVENTS[2:]))
    path.write_bytes(first + rest[:10])
    assert reader.read() == EVENTS[:2]
    assert reader.read() == []
    path.write_bytes(first + rest)
    assert reader.read() == EVENTS[2:]


@pytest.mark.parametrize("line", [b"", b"{}", b'{"type":"begun"}', b'{"type":"ended","test":"a","outcome":"lost"}'])
def test_other_lines_are_refused(line):
    with pytest.raises(msgspec.DecodeError):
        decode(line)
