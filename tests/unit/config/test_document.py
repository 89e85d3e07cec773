import itertools

import pytest
import yaml

from klet.config.document import MOST_NODES, Document, check_limits, parse_document, resolve_scalar
from klet.config.errors import ConfigError

LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("12", 12, id="a decimal"),
        pytest.param("-1_000", -1000, id="underscores in a number"),
        pytest.param("0x1F", 31, id="hexadecimal"),
        pytest.param("0o17", 15, id="octal of YAML 1.2"),
        pytest.param("017", 15, id="octal of YAML 1.1"),
        pytest.param("0b101", 5, id="binary"),
        pytest.param("08", 8, id="not octal, so a number with a leading zero"),
        pytest.param("1e3", 1000, id="an exponent without a dot"),
        pytest.param("10250.0", 10250, id="an integral float passes as an integer"),
        pytest.param("0.5", 0.5, id="a fraction"),
        pytest.param("yes", True, id="yes is true"),
        pytest.param("Off", False, id="off is false"),
        pytest.param("y", True, id="so is a single letter"),
        pytest.param("~", None, id="tilde is null"),
        pytest.param("", None, id="nothing is null"),
        pytest.param("1:30", "1:30", id="no sexagesimal numbers"),
        pytest.param("2020-01-01", "2020-01-01", id="no dates"),
        pytest.param("100Mi", "100Mi", id="a quantity is text"),
        pytest.param("1.2.3.4", "1.2.3.4", id="an address is text"),
    ],
)
def test_resolve_scalar(text, expected):
    resolved = resolve_scalar(text)
    assert resolved == expected
    assert type(resolved) is type(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(b'{"a": {"b": [1, {"c": null}]}}', {"a": {"b": [1, {"c": None}]}}, id="JSON"),
        pytest.param(b"a:\n  b:\n  - 1\n  - c:\n", {"a": {"b": [1, {"c": None}]}}, id="YAML"),
        pytest.param(b"{a: 1}", {"a": 1}, id="YAML in flow style"),
        pytest.param(b"a: '1'\nb: !!str 2\nc: !!int '3'\n", {"a": "1", "b": "2", "c": 3}, id="quotes and tags decide"),
        pytest.param(b"a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}\n", {"a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 3}},
                     id="merge keys"),
        pytest.param(b"1: a\ntrue: b\n", {"1": "a", "true": "b"}, id="keys become text"),
        pytest.param(b"a: 1\n---\nb: 2\n", {"a": 1}, id="the first document counts"),
    ],
)  # fmt: skip
def test_parse_document(text, expected):
    assert parse_document(text) == Document(expected)


@pytest.mark.parametrize(
    ("text", "duplicates"),
    [
        pytest.param(b'{"a": 1, "a": 2}', ("a",), id="JSON"),
        pytest.param(b"a: 1\na: 2\n", ("a",), id="YAML"),
        pytest.param(b"l:\n- {x: {z: 1, z: 2}}\n", ("l[0].x.z",), id="deep inside"),
    ],
)
def test_duplicates_are_named_by_their_path(text, duplicates):
    assert parse_document(text).duplicates == duplicates


def test_half_of_a_surrogate_pair_is_replaced_so_that_the_text_can_be_written():
    found = parse_document(rb'{"a\ud800": ["\udfff", "\ud83d\ude00", "\u00e9"]}')
    assert found.fields == {"a\ufffd": ["\ufffd", "\U0001f600", "\u00e9"]}


def test_the_last_duplicate_counts():
    assert parse_document(b"a: 1\na: 2\n").fields == {"a": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(b"a: b: c\n", "yaml: line 1: mapping values are not allowed", id="bad YAML names the line"),
        pytest.param(b"{", "error converting YAML to JSON: yaml: line", id="half an object"),
        pytest.param(b"- a\n", "not an object", id="a list"),
        pytest.param(b"just text", "not an object", id="a text"),
        pytest.param(b"# nothing\n", "not an object", id="only a comment"),
        pytest.param(b"a: 1\nb: \xff\n", "not UTF-8 (line 2, column 4)", id="other bytes"),
        pytest.param("a: 1\nb: é\x07\n".encode(), "yaml: line 2, column 5: control characters are not allowed (U+0007)",
                     id="a control character"),
        pytest.param(b'{"a": "\x00"}', "yaml: line 1, column 8: control characters are not allowed (U+0000)",
                     id="one in JSON"),
        pytest.param(b"a: &x [*x]\n", "contains itself", id="an anchor within itself"),
        pytest.param(b"? [a]\n: 1\n", "a key must be a scalar", id="a list as a key"),
    ],
)  # fmt: skip
def test_bad_text_is_one_message(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_document(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


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
