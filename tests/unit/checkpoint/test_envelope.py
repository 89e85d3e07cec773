import hashlib
import json

import msgspec
import pytest

from klet.checkpoint import CheckpointDamaged, CheckpointVersion, Envelope


class State(msgspec.Struct, frozen=True):
    count: int
    names: dict[str, str] = {}


FORM = Envelope(kind="example", version=2, payload=State, older={1: lambda payload: State(count=int(payload))})


def seal(kind, version, payload):
    digest = hashlib.sha256(f"{kind}\n{version}\n{payload}".encode()).hexdigest()
    return f'{{"kind":"{kind}","version":{version},"checksum":"{digest}","payload":{payload}}}'.encode()


def test_a_value_comes_back():
    state = State(count=3, names={"ü": "x"})
    assert FORM.decode(FORM.encode(state)) == state


def test_equal_values_give_equal_files():
    one = State(count=1, names={"a": "1", "b": "2"})
    other = State(count=1, names={"b": "2", "a": "1"})
    assert FORM.encode(one) == FORM.encode(other)


def test_maps_with_numbers_as_keys_are_fine():
    form = Envelope(kind="example", version=1, payload=dict[int, bytes])
    assert form.decode(form.encode({10: b"\xff", 9: b""})) == {10: b"\xff", 9: b""}


def test_the_fields_of_the_file():
    outer = json.loads(FORM.encode(State(count=3)))
    assert list(outer) == ["kind", "version", "checksum", "payload"]
    assert (outer["kind"], outer["version"], outer["payload"]) == ("example", 2, {"count": 3, "names": {}})


def test_an_older_version_is_read():
    assert FORM.decode(seal("example", 1, "7")) == State(count=7)


@pytest.mark.parametrize("version", [0, 3, 99])
def test_a_version_that_is_not_known_is_refused(version):
    with pytest.raises(CheckpointVersion, match=f"field version is {version}, this klet knows 1, 2"):
        FORM.decode(seal("example", version, "{}"))


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        pytest.param(b"", "not a klet checkpoint", id="nothing"),
        pytest.param(b"\xff\xfe", "not a klet checkpoint", id="no text"),
        pytest.param(b'{"kind":"example"}', "missing required field `version`", id="no envelope"),
        pytest.param(seal("example", 2, '{"count":3}')[:-9], "not a klet checkpoint", id="cut off"),
        pytest.param(seal("example", 2, '{"count":3}').replace(b":3", b":4"), "field checksum", id="changed payload"),
        pytest.param(seal("example", 3, "{}").replace(b":3", b":2"), "field checksum", id="changed version"),
        pytest.param(seal("other", 2, '{"count":3}'), "field kind is 'other', expected 'example'", id="another kind"),
        pytest.param(seal("example", 2, '{"count":"x"}'), "field payload of version 2", id="another payload"),
    ],
)
def test_damage_names_the_rule(data, rule):
    with pytest.raises(CheckpointDamaged, match=rule):
        FORM.decode(data)


def test_any_changed_byte_is_found():
    data = FORM.encode(State(count=3, names={"a": "b"}))
    for index in range(len(data)):
        changed = data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :]
        with pytest.raises(CheckpointDamaged):
            FORM.decode(changed)


def test_a_kind_is_not_quoted_whole():
    other = Envelope(kind="x" * 100_000, version=1, payload=dict[str, int]).encode({})
    with pytest.raises(CheckpointDamaged) as caught:
        Envelope(kind="Small", version=1, payload=dict[str, int]).decode(other)
    assert len(str(caught.value)) < 2048
