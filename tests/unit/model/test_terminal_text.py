import json

import msgspec
import pytest

from klet.cli.json_text import as_json_text
from klet.model.foreign_text import as_terminal_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("plain\ttext\nin lines, ä and 語", "plain\ttext\nin lines, ä and 語", id="text is itself"),
        pytest.param("\x1b]0;title\x07", "\\u001b]0;title\\u0007", id="an escape sequence"),
        pytest.param("\x9b31m", "\\u009b31m", id="the one-byte form of it"),
        pytest.param("a\rb\x08\x00\x7f", "a\\u000db\\u0008\\u0000\\u007f", id="what overwrites a line"),
        pytest.param("\u202eabc\u2066", "\\u202eabc\\u2066", id="what turns a line around"),
    ],
)
def test_control_characters_are_shown(text, shown):
    assert as_terminal_text(text) == shown


def test_json_stays_what_it_was():
    value = {"message": "\x1b[2J\x9b\u202e", "\x9b": ["\x00"]}
    text = as_terminal_text(as_json_text(msgspec.json.encode(value)))
    assert json.loads(text) == value
    assert text.isascii()
