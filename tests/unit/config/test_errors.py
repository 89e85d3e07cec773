import pytest

from klet.config.errors import ConfigError, one_line, prefixed, suffixed, warned


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param("plain", "plain", id="one line stays"),
        pytest.param("one\n  two\r\n\nthree\n", "one; two; three", id="lines are joined"),
        pytest.param("bell\x07 and \x1b[31m", r"bell\x07 and \x1b[31m", id="a terminal is left alone"),
        pytest.param("ä €", "ä €", id="other letters stay"),
        pytest.param("\udcff", r"\udcff", id="bytes that are no text can be printed"),
    ],
)
def test_one_line(message, expected):
    assert one_line(message) == expected


def test_warnings_survive_what_is_said_around_a_mistake():
    with (
        pytest.raises(ConfigError, match=r"^a step: a mistake, path: x$") as caught,
        warned(["first"]),
        prefixed("a step: "),
        suffixed(", path: x"),
        warned(["second"]),
    ):
        raise ConfigError("a mistake")
    assert caught.value.warnings == ("first", "second")
