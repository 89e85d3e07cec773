"""Every struct against the table of upstream's kinds: fields, wire names, types, and the way there and back."""

import importlib
import json
import pkgutil
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

import klet.api
from klet.api.base import ApiObject, Int32, Int64, IntOrString
from klet.api.codec import convert, decode, encode, to_builtins
from klet.api.meta import ObjectList
from klet.api.quantity import Quantity
from klet.api.schema import Field, ListOf, MapOf, Object, Opaque, Scalar, Shape, fields_of
from klet.api.times import MicroTime, Time

TABLE: Mapping[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "kubernetes_objects.json").read_text(encoding="utf-8")
)
STRUCTS = {name: fields for name, fields in TABLE.items() if isinstance(fields, dict)}

GROUPS = {
    "authentication": "authentication.v1",
    "authorization": "authorization.v1",
    "certificates": "certificates.v1",
    "coordination": "coordination.v1",
    "discovery": "discovery.v1",
    "events_v1": "events.v1",
    "groups": "meta.v1",
    "meta": "meta.v1",
    "rbac": "rbac.v1",
    "resource": "resource.v1",
}
# Modules that hold kinds of two groups: the class decides.
GUESTS = {
    "Overhead": "node.v1",
    "Scheduling": "node.v1",
    "RuntimeClass": "node.v1",
    "PriorityClass": "scheduling.v1",
    "Eviction": "policy.v1",
    "ClusterTrustBundle": "certificates.v1beta1",
    "ClusterTrustBundleSpec": "certificates.v1beta1",
    "PodCertificateRequest": "certificates.v1beta1",
    "PodCertificateRequestSpec": "certificates.v1beta1",
    "PodCertificateRequestStatus": "certificates.v1beta1",
}
STORAGE_V1 = {name.removeprefix("storage.v1.") for name in STRUCTS if name.startswith("storage.v1.")}
SAME = {
    "certificates.v1alpha1.ClusterTrustBundle": "certificates.v1beta1.ClusterTrustBundle",
    "certificates.v1alpha1.ClusterTrustBundleSpec": "certificates.v1beta1.ClusterTrustBundleSpec",
}
OWN = (ApiObject, ObjectList)
OWN_FIELDS: dict[str, frozenset[str]] = {}
"""Fields that upstream's structs do not have, by struct; the struct of such a field is in `OWN`."""


def upstream_name(cls: type[ApiObject]) -> str:
    module = cls.__module__.removeprefix("klet.api.")
    group = GUESTS.get(cls.__name__) or GROUPS.get(module, "core.v1")
    if module == "storage" and cls.__name__ in STORAGE_V1:
        group = "storage.v1"
    return f"{group}.{cls.__name__}"


def all_structs() -> dict[str, type[ApiObject]]:
    found = {}
    for info in pkgutil.iter_modules(klet.api.__path__):
        module = importlib.import_module(f"klet.api.{info.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, ApiObject) and value not in OWN:
                found[upstream_name(value)] = value
    return {**found, **{other: found[name] for other, name in SAME.items()}}


OURS = all_structs()
SCALARS = {
    "string": str,
    "boolean": bool,
    "int32": Int32,
    "int64": Int64,
    "bytes(base64)": bytes,
    "api.resource.Quantity": Quantity,
    "meta.v1.Time": Time,
    "meta.v1.MicroTime": MicroTime,
    "util.intstr.IntOrString": IntOrString,
}
SAMPLES = {
    "string": "text",
    "boolean": True,
    "int32": 7,
    "int64": 1 << 40,
    "bytes(base64)": "aGVsbG8=",
    "api.resource.Quantity": "1500m",
    "meta.v1.Time": "2024-02-03T04:05:06Z",
    "meta.v1.MicroTime": "2024-02-03T04:05:06.000789Z",
    "util.intstr.IntOrString": "http",
    "meta.v1.FieldsV1": {"f:spec": {".": None}},
    "runtime.RawExtension": {"any": [1, None]},
}


def without_marks(text: str) -> str:
    return re.sub(r"( required)?( patch=.*)?$", "", text)


def expected_shape(text: str) -> Shape:
    if inner := re.fullmatch(r"list<(.*)>", text):
        return ListOf(expected_shape(inner[1]))
    if inner := re.fullmatch(r"map<string, (.*)>", text):
        return MapOf(expected_shape(inner[1]))
    if text in ("meta.v1.FieldsV1", "runtime.RawExtension"):
        return Opaque()
    return Scalar(SCALARS[text]) if text in SCALARS else Object(OURS[text])


def sample(text: str, depth: int = 0) -> Any:
    text = without_marks(text)
    if inner := re.fullmatch(r"list<(.*)>", text):
        return [sample(inner[1], depth)]
    if inner := re.fullmatch(r"map<string, (.*)>", text):
        return {"key": sample(inner[1], depth)}
    if text in SAMPLES:
        return SAMPLES[text]
    return {name: sample(kind, depth + 1) for name, kind in STRUCTS[text].items() if depth < 12}


def test_there_is_a_struct_for_every_kind_and_no_other():
    assert set(OURS) == set(STRUCTS)


@pytest.mark.parametrize("name", STRUCTS)
def test_fields_have_the_wire_names_and_types_of_upstream(name):
    ours = {wire: field for wire, field in fields_of(OURS[name]).items() if wire not in OWN_FIELDS.get(name, ())}
    assert {wire: field.shape for wire, field in ours.items()} == {
        wire: expected_shape(without_marks(text)) for wire, text in STRUCTS[name].items()
    }


@pytest.mark.parametrize("name", STRUCTS)
def test_a_full_object_survives_the_way_there_and_back(name):
    data = {wire: sample(text) for wire, text in STRUCTS[name].items()}
    cls = OURS[name]
    read = decode(cls, json.dumps(data))
    assert json.loads(encode(read)) == data
    assert decode(cls, encode(read)) == read
    if name != "meta.v1.WatchEvent":  # its object stays raw bytes, which plain data cannot give
        assert convert(cls, data) == read
        assert to_builtins(read) == data


@pytest.mark.parametrize("name", STRUCTS)
def test_an_empty_object_is_read_and_nothing_but_required_fields_is_written(name):
    written = json.loads(encode(decode(OURS[name], b"{}")))
    required = {wire for wire, text in STRUCTS[name].items() if " required" in text}
    assert set(written) <= required
    assert decode(OURS[name], encode(OURS[name]())) == OURS[name]()


@pytest.mark.parametrize("name", STRUCTS)
def test_null_fields_are_absent_fields(name):
    data = dict.fromkeys(STRUCTS[name])
    if name == "meta.v1.WatchEvent":
        data.pop("object")
    assert decode(OURS[name], json.dumps(data)) == OURS[name]()


@pytest.mark.parametrize("name", STRUCTS)
def test_defaults_are_empty_values(name):
    def is_empty(field: Field, value: Any) -> bool:
        if isinstance(value, ApiObject):
            return all(is_empty(inner, getattr(value, inner.name)) for inner in fields_of(type(value)).values())
        return not value or (isinstance(value, msgspec.Raw) and bytes(value) == b"null")

    nothing = OURS[name]()
    assert all(is_empty(field, getattr(nothing, field.name)) for field in fields_of(OURS[name]).values())


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("core.v1.PodSpec", "terminationGracePeriodSeconds"),
        ("core.v1.PodSpec", "hostUsers"),
        ("core.v1.PodSpec", "enableServiceLinks"),
        ("core.v1.PodSpec", "automountServiceAccountToken"),
        ("core.v1.SecurityContext", "runAsUser"),
        ("core.v1.SecurityContext", "privileged"),
        ("core.v1.ContainerStatus", "started"),
        ("core.v1.KeyToPath", "mode"),
    ],
)
def test_unset_and_zero_stay_apart_where_upstream_has_a_pointer(name, wire):
    zero = {"boolean": False}.get(STRUCTS[name][wire], 0)
    written = json.loads(encode(decode(OURS[name], json.dumps({wire: zero}))))
    assert written[wire] == zero
    assert wire not in json.loads(encode(decode(OURS[name], b"{}")))
