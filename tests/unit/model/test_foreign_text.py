import pytest

from klet.model.foreign_text import LONGEST_OUTPUT, read_output, shorten


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param((), "", id="nothing"),
        pytest.param((b"out\n", b"err"), "out\nerr", id="one after the other"),
        pytest.param((b"x" * 20_000, b"err"), "x" * LONGEST_OUTPUT, id="too much"),
        pytest.param((b"x" * 10_000, b"y" * 10_000), "x" * 10_000 + "y" * 240, id="too much together"),
        pytest.param((b"a\xff\xfeb",), "a\ufffd\ufffdb", id="not UTF-8"),
        pytest.param((b"x" * (LONGEST_OUTPUT - 1) + "é".encode(),), "x" * (LONGEST_OUTPUT - 1) + "\ufffd", id="half"),
    ],
)
def test_output_is_cut_before_it_is_decoded(parts, expected):
    assert read_output(*parts) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("x" * 10, "x" * 10, id="as long as it may be"),
        pytest.param("x" * 11, "x" * 7 + "…", id="one byte too long"),
        pytest.param("é" * 5, "é" * 5, id="as long as it may be, in bytes"),
        pytest.param("é" * 6, "é" * 3 + "…", id="too long in bytes only, and no half character"),
        pytest.param("😀" * 3, "😀…", id="characters of four bytes"),
        pytest.param("a\udc80b", "a\udc80b", id="what cannot be encoded, and is short"),
        pytest.param("a\udc80" * 9, "aa…", id="what cannot be encoded, and is long"),
    ],
)
def test_a_text_is_cut_to_bytes(text, expected):
    assert shorten(text, 10) == expected
    assert len(shorten(text, 10).encode("utf-8", "surrogatepass")) <= 10
