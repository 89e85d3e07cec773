import itertools

import pytest
import yaml

from klet.config.document import parse_document
from klet.config.document_limits import MOST_NODES, check_limits
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


@pytest.mark.parametrize(("count", "is_refused"), [(MOST_NODES, False), (MOST_NODES + 1, True)])
def test_a_document_of_very_many_values_is_refused(count, is_refused):
    events = itertools.repeat(yaml.ScalarEvent(None, None, (True, False), "x"), count)
    if is_refused:
        with pytest.raises(ConfigError, match="document has more than 500000 values"):
            check_limits(events)
    else:
        check_limits(events)


def test_earlier_of_merged_mappings_win_and_own_keys_over_all():
    document = parse_document(b"a: {<<: [{k: 1, l: 1}, {l: 2, m: 2}], m: 3}")
    assert document.fields == {"a": {"k": 1, "l": 1, "m": 3}}


def test_duplicates_below_long_keys_are_named_in_short():
    inner = b",".join(b'"x":1' for _ in range(1000))
    document = parse_document(b'{"' + b"k" * 100_000 + b'":[{' + inner + b"}]}")
    assert set(document.duplicates) == {"k" * 256 + "[0].x"}
    assert len(document.duplicates) == 100
