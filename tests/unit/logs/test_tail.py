"""The end of a log in one read."""

import pytest

from klet.logs.line import LogError
from klet.logs.tail import read_end


def line(text: str, tag: str = "F") -> str:
    return f"2030-01-01T00:00:00.5Z stdout {tag} {text}\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("", b"", id="empty"),
        pytest.param(line("a") + line("b"), b"a\nb\n", id="all of a short log"),
        pytest.param("".join(line(str(number)) for number in range(100)), b"97\n98\n99\n", id="only the last lines"),
        pytest.param(line("x" * 3000), b"x" * 49 + b"\n", id="only the last bytes"),
        pytest.param(line("ab", "P") + line("cd"), b"abcd\n", id="parts of a line"),
        pytest.param(line("a") + line("b")[:-1], b"a\nb", id="an incomplete last line"),
    ],
)
def test_what_is_read(tmp_path, content, expected):
    path = tmp_path / "0.log"
    path.write_text(content)
    assert read_end(path, lines=3, limit=50) == expected


def test_a_log_that_is_gone(tmp_path):
    with pytest.raises(LogError):
        read_end(tmp_path / "0.log", lines=3, limit=50)


TERABYTES = 8 << 40


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        pytest.param(b"", b"", id="nothing but a hole"),
        pytest.param(b"\n" + line("the end").encode(), b"the end\n", id="a line behind a hole"),
        pytest.param(b"\n" + line("a").encode() + line("b").encode(), b"a\nb\n", id="fewer lines than wanted"),
    ],
)
def test_a_hole_is_not_walked_through(tmp_path, end, expected):
    """A pod that may write to the directory of logs makes a file of any size in a moment."""
    path = tmp_path / "0.log"
    with path.open("wb") as file:
        file.truncate(TERABYTES)
        file.seek(TERABYTES)
        file.write(end)
    assert read_end(path, lines=3, limit=50) == expected
