import pytest

from klet.api.authentication import UserInfo
from klet.api.base import ApiObject
from klet.api.codec import DecodeError, convert, decode, encode, to_builtins
from klet.api.config import ConfigMap, Secret
from klet.api.meta import ObjectList, WatchEvent
from klet.api.node import Node
from klet.api.pod import Pod
from klet.api.resource import Device
from klet.api.schema import unknown_fields
from klet.api.times import Duration

QUANTITY_RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class Sample(ApiObject, frozen=True, kw_only=True):
    period: Duration | None = None


@pytest.mark.parametrize(
    ("data", "field", "message"),
    [
        pytest.param(b"{", "", "invalid JSON: Input data was truncated", id="broken JSON has no field"),
        pytest.param(b"[]", "", "Expected `object`, got `array`", id="the whole is of the wrong type"),
        pytest.param(
            b'{"spec":{"containers":[{"image":3}]}}',
            "spec.containers[0].image",
            "Expected `str`, got `int`",
            id="a list index is in the path",
        ),
        pytest.param(
            b'{"metadata":{"labels":{"a":"b","c":1}}}',
            "metadata.labels[c]",
            "Expected `str`, got `int`",
            id="a map key is in the path",
        ),
        pytest.param(
            b'{"spec":{"containers":[{"resources":{"limits":{"cpu":"1","memory":"1x"}}}]}}',
            "spec.containers[0].resources.limits[memory]",
            QUANTITY_RULE,
            id="a quantity says what it must look like",
        ),
        pytest.param(
            b'{"spec":{"containers":[{"env":null,"image":3}]}}',
            "spec.containers[0].image",
            "Expected `str`, got `int`",
            id="a forgiven null does not hide an error",
        ),
        pytest.param(
            b'{"metadata":{"creationTimestamp":"yesterday"}}',
            "metadata.creationTimestamp",
            "'yesterday' is not an RFC 3339 time",
            id="a time",
        ),
        pytest.param(
            b'{"metadata":{"creationTimestamp":7}}',
            "metadata.creationTimestamp",
            "Expected `str`, got `int`",
            id="a time is text",
        ),
        pytest.param(
            b'{"spec":{"priority":2147483648}}',
            "spec.priority",
            "Expected `int` <= 2147483647",
            id="32 bits are 32 bits",
        ),
        pytest.param(
            b'{"spec":{"containers":[{"resources":{"limits":{"cpu":true}}}]}}',
            "spec.containers[0].resources.limits[cpu]",
            "Expected a quantity, got `bool`",
            id="a boolean is no quantity",
        ),
    ],
)
def test_an_error_names_the_field(data, field, message):
    with pytest.raises(DecodeError) as caught:
        decode(Pod, data)
    assert caught.value.field == field
    assert caught.value.message == message
    assert str(caught.value) == (f"{field}: {message}" if field else message)


def test_a_text_that_only_begins_like_json_is_no_json():
    with pytest.raises(DecodeError, match="invalid JSON"):
        decode(Pod, b"[+]ping ok\n[-]etcd failed")


def test_convert_names_the_field_too():
    with pytest.raises(DecodeError, match=r"spec\.hostNetwork: Expected `bool`, got `str`"):
        convert(Pod, {"spec": {"hostNetwork": "yes"}})


def test_what_yaml_reads_as_keys_of_another_type_is_text():
    assert convert(Pod, {"metadata": {"labels": {5: "a", True: "b", "c": "d"}}}).metadata.labels == {
        "5": "a",
        "true": "b",
        "c": "d",
    }
    with pytest.raises(DecodeError, match=r"^metadata\.labels: Expected `str`, got `null` as a key$"):
        convert(Pod, {"metadata": {"labels": {None: "a"}}})


def test_a_map_of_lists_and_a_map_of_objects_name_the_key():
    with pytest.raises(DecodeError, match=r"^extra\[b\]\[0\]: Expected `str`, got `int`$"):
        convert(UserInfo, {"extra": {"a": None, "b": [1]}})
    with pytest.raises(DecodeError, match=r"^capacity\[y\]\.value: quantities must match"):
        convert(Device, {"capacity": {"x": {"value": "1"}, "y": {"value": "zz"}}})


def test_a_key_of_any_length_is_named_in_few_words():
    with pytest.raises(DecodeError) as caught:
        convert(Node, {"status": {"capacity": {"c" * 100_000: []}}})
    assert len(str(caught.value)) < 500
    assert [len(path) for path, _ in unknown_fields(Node, {"x" * 100_000: 1})] == [300]


def test_what_is_no_part_of_the_api_is_not_written():
    with pytest.raises(TypeError, match="no way to write complex"):
        encode({"a": 1j})


def test_nulls_are_forgiven_but_kept_in_opaque_data():
    data = {
        "metadata": {"labels": {"a": None}, "managedFields": [{"fieldsV1": {"f:x": None}}]},
        "spec": {"containers": [None, {"args": ["x", None], "image": None}], "volumes": None},
    }
    pod = convert(Pod, data)
    assert to_builtins(pod) == {
        "metadata": {"labels": {"a": ""}, "managedFields": [{"fieldsV1": {"f:x": None}}]},
        "spec": {"containers": [{"name": ""}, {"name": "", "args": ["x", ""]}]},
    }


def test_unknown_fields_are_ignored():
    assert decode(Pod, b'{"spec":{"fancy":{"new":1}},"kind":"Pod"}') == Pod(kind="Pod")


def test_bytes_travel_as_base64():
    secret = decode(Secret, b'{"data":{"k":"aGVs\\nbG8="}}')
    assert secret.data["k"] == b"hello"
    assert encode(secret) == b'{"data":{"k":"aGVsbG8="}}'
    assert decode(ConfigMap, b'{"binaryData":{"k":null}}').binary_data == {"k": b""}


def test_quantities_may_be_numbers():
    pod = decode(Pod, b'{"spec":{"overhead":{"cpu":0.5,"memory":1024}}}')
    assert {name: str(amount) for name, amount in pod.spec.overhead.items()} == {"cpu": "500m", "memory": "1024"}


def test_durations_travel_as_go_writes_them():
    assert encode(decode(Sample, b'{"period":"90s"}')) == b'{"period":"1m30s"}'


def test_a_list_of_any_kind():
    data = b'{"kind":"SecretList","metadata":{"resourceVersion":"7"},"items":[{"data":{"k":null}},null]}'
    found = decode(ObjectList[Secret], data)
    assert found.items == (Secret(data={"k": b""}), Secret())
    assert found.metadata.resource_version == "7"
    with pytest.raises(DecodeError, match=r"^items\[0\]\.type: Expected `str`, got `int`$"):
        decode(ObjectList[Secret], b'{"items":[{"type":1}]}')


def test_the_object_of_a_watch_event_stays_raw():
    event = decode(WatchEvent, b'{"type":"ADDED","object":{"kind":"Pod"}}')
    assert decode(Pod, bytes(event.object)).kind == "Pod"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(
            {"spec": {"contianers": []}}, [("spec.contianers", "containers")], id="a misspelling gets its correction"
        ),
        pytest.param({"spec": {"hostnetwork": True}}, [("spec.hostnetwork", "hostNetwork")], id="so does a wrong case"),
        pytest.param(
            {"spec": {"containers": [{}, {"zzz": 1}]}}, [("spec.containers[1].zzz", None)], id="nothing is near"
        ),
        pytest.param({"metadata": {"labels": {"any": "thing"}}, "spec": None}, [], id="map keys are free"),
        pytest.param(
            {"metadata": {"managedFields": [{"fieldsV1": {"x": 1}}]}}, [], id="opaque data is not looked into"
        ),
        pytest.param({"spec": "text", "status": []}, [], id="a wrong type is the decoder's business"),
    ],
)
def test_unknown_fields(data, expected):
    assert unknown_fields(Pod, data) == expected


def test_what_cannot_be_written_is_replaced():
    """The name of a file that is no text, in the message of an error, must not keep an Event or a status back."""
    written = encode(ConfigMap(data={"a\udcff": "b\udce3", "c": "é"}))
    assert decode(ConfigMap, written).data == {"a?": "b?", "c": "é"}
    assert to_builtins({"a": ["\udcff", 1, None, {"b": "c"}]}) == {"a": ["?", 1, None, {"b": "c"}]}
