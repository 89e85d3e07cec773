import pytest

from klet.config.document import parse_document
from klet.config.errors import ConfigError

LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("[" * 100_000, "nested more than 100 deep", id="a wall of brackets"),
        pytest.param('{"a":' * 100_000, "nested more than 100 deep", id="deep JSON"),
        pytest.param("".join(f"{' ' * n}a:\n" for n in range(200)), "nested more than 100 deep", id="deep indentation"),
        pytest.param(LAUGHS, "document contains excessive aliasing", id="aliases of aliases"),
    ],
)
def test_a_harmful_text_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_document(text.encode())


def test_ordinary_aliases_are_filled_in():
    document = parse_document(b"a: &a {x: 1, z: [2]}\nb: *a\nc: [*a, *a]\nd: &s word\ne: *s\n")
    part = {"x": 1, "z": [2]}
    assert document.fields == {"a": part, "b": part, "c": [part, part], "d": "word", "e": "word"}


def test_fair_nesting_is_fine():
    text = "[" * 90 + "1" + "]" * 90
    assert list(parse_document(f"a: {text}".encode()).fields) == ["a"]
