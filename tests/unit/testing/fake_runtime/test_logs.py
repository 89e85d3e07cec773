from pathlib import Path

import pytest

from klet.testing.fake_runtime.logs import MAX_RECORD, FileSink, MemorySink, format_records, format_stamp

STAMP = 1_893_456_000_120_000_000
TIME = b"2030-01-01T00:00:00.12Z"


@pytest.mark.parametrize(
    ("stamp", "text"),
    [
        (1_893_456_000_000_000_000, "2030-01-01T00:00:00Z"),
        (STAMP, "2030-01-01T00:00:00.12Z"),
        (1_893_456_000_000_000_001, "2030-01-01T00:00:00.000000001Z"),
    ],
)
def test_trailing_zeros_are_cut(stamp, text):
    assert format_stamp(stamp) == text


@pytest.mark.parametrize(
    ("text", "newline", "records"),
    [
        pytest.param("hi", True, b"%b stdout F hi\n" % TIME, id="a line is one full record"),
        pytest.param("", True, b"%b stdout F \n" % TIME, id="an empty line is a record"),
        pytest.param("hi", False, b"%b stdout P hi\n" % TIME, id="an unfinished line is partial"),
        pytest.param("", False, b"", id="nothing is nothing"),
        pytest.param(
            "x" * (MAX_RECORD + 1),
            True,
            b"%b stdout P %b\n%b stdout F x\n" % (TIME, b"x" * MAX_RECORD, TIME),
            id="a long line is cut",
        ),
    ],
)
def test_records(text, newline, records):
    assert format_records(text, stream="stdout", stamp=STAMP, newline=newline) == records


@pytest.fixture(params=["memory", "files"])
def sink(request, tmp_path):
    if request.param == "memory":
        memory = MemorySink()
        yield memory, memory.read, memory.rename
        return
    files = FileSink()
    yield (
        files,
        lambda path: Path(path).read_bytes() if Path(path).exists() else None,
        lambda old, new: Path(old).rename(new),
    )
    files.close_all()


def test_a_writer_keeps_a_renamed_file_until_it_reopens(sink, tmp_path):
    write, read, rename = sink
    path, old = str(tmp_path / "pod" / "a.log"), str(tmp_path / "a.old")
    write.open(path)
    write.write(path, b"1")
    rename(path, old)
    write.write(path, b"2")
    assert (read(path), read(old)) == (None, b"12")
    write.open(path)
    write.write(path, b"3")
    assert (read(path), read(old)) == (b"3", b"12")


def test_a_closed_log_takes_no_more(sink, tmp_path):
    write, read, _ = sink
    path = str(tmp_path / "a.log")
    write.open(path)
    write.write(path, b"1")
    write.close(path)
    write.write(path, b"2")
    assert read(path) == b"1"


def test_opening_again_appends(sink, tmp_path):
    write, read, _ = sink
    path = str(tmp_path / "a.log")
    for text in (b"1", b"2"):
        write.open(path)
        write.write(path, text)
    assert read(path) == b"12"


def test_files_of_containers_are_replaced(sink, tmp_path):
    write, read, _ = sink
    path = str(tmp_path / "message")
    write.write_file(path, b"long")
    write.write_file(path, b"1")
    assert read(path) == b"1"


def test_memory_lists_and_forgets():
    memory = MemorySink()
    memory.write_file("/a", b"")
    memory.remove("/a")
    memory.write_file("/b", b"")
    assert memory.paths() == ["/b"]
