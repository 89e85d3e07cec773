import pytest

from klet.api.codec import convert
from klet.api.meta import ObjectMeta
from klet.api.validation import formats
from klet.api.validation.fieldpath import METADATA
from klet.api.validation.metadata import name_format_of, validate_object_meta, validate_object_meta_update

[LABEL] = formats.dns_label("A")
[SUBDOMAIN] = formats.dns_subdomain("A")
[NAME_PART] = formats.label_key("-a")
[VALUE] = formats.label_value("a b")

GOOD = {"name": "a", "namespace": "n"}


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        pytest.param({}, [], id="a name and a namespace are enough"),
        pytest.param({"name": ""}, ["metadata.name: Required value: name or generateName is required"], id="no name"),
        pytest.param({"name": "A"}, [f'metadata.name: Invalid value: "A": {SUBDOMAIN}'], id="a bad name"),
        pytest.param({"generateName": "a-"}, [], id="a generated name may end in a dash"),
        pytest.param(
            {"generateName": "A-b"}, [f'metadata.generateName: Invalid value: "A-b": {SUBDOMAIN}'], id="a bad prefix"
        ),
        pytest.param({"namespace": ""}, ["metadata.namespace: Required value"], id="no namespace"),
        pytest.param({"namespace": "A"}, [f'metadata.namespace: Invalid value: "A": {LABEL}'], id="a bad namespace"),
        pytest.param(
            {"generation": -1},
            ["metadata.generation: Invalid value: -1: must be greater than or equal to 0"],
            id="a negative generation",
        ),
        pytest.param({"labels": {"-a": "b"}}, [f'metadata.labels: Invalid value: "-a": {NAME_PART}'], id="a label key"),
        pytest.param(
            {"labels": {"a": "b c"}},
            [f'metadata.labels: Invalid value: "b c": {VALUE}'],
            id="a label value",
        ),
        pytest.param(
            {"annotations": {"-a": "b"}},
            [f'metadata.annotations: Invalid value: "-a": {NAME_PART}'],
            id="an annotation key",
        ),
        pytest.param({"annotations": {"a": "x" * 262143}}, [], id="annotations up to the limit"),
        pytest.param(
            {"annotations": {"a": "x" * 262144}},
            ["metadata.annotations: Too long: may not be more than 262144 bytes"],
            id="too many annotations",
        ),
        pytest.param(
            {"ownerReferences": [{}]},
            [
                'metadata.ownerReferences.apiVersion: Invalid value: "": version must not be empty',
                'metadata.ownerReferences.kind: Invalid value: "": must not be empty',
                'metadata.ownerReferences.name: Invalid value: "": must not be empty',
                'metadata.ownerReferences.uid: Invalid value: "": must not be empty',
            ],
            id="an empty owner",
        ),
        pytest.param(
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]},
            [
                (
                    'metadata.ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"e","uid":"u"}: '
                    "/v1, Kind=Event is disallowed from being an owner"
                )
            ],
            id="an event owns nothing",
        ),
        pytest.param(
            {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1", "controller": True},
                    {"apiVersion": "v1", "kind": "B", "name": "b", "uid": "2", "controller": True},
                ]
            },
            [
                (
                    "metadata.ownerReferences: Invalid value: "
                    '[{"apiVersion":"v1","kind":"A","name":"a","uid":"1","controller":true},'
                    '{"apiVersion":"v1","kind":"B","name":"b","uid":"2","controller":true}]: '
                    'Only one reference can have Controller set to true. Found "true" in references for A/a and B/b'
                )
            ],
            id="two controllers",
        ),
        pytest.param({"finalizers": ["a.b/c", "orphan", "kubernetes"]}, [], id="finalizers"),
        pytest.param(
            {"finalizers": ["-"]},
            [
                f'metadata.finalizers: Invalid value: "-": {NAME_PART}',
                (
                    'metadata.finalizers[0]: Invalid value: "-": name is neither a standard '
                    "finalizer name nor is it fully "
                    "qualified"
                ),
            ],
            id="a bad finalizer",
        ),
        pytest.param(
            {"finalizers": ["orphan", "foregroundDeletion"]},
            [
                (
                    'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: '
                    "finalizer orphan and foregroundDeletion cannot be both set"
                )
            ],
            id="finalizers that contradict",
        ),
        pytest.param(
            {"managedFields": [{"operation": "X", "fieldsType": "Y", "manager": "m" * 129, "subresource": "s" * 257}]},
            [
                'metadata.managedFields[0].operation: Invalid value: "X": must be `Apply` or `Update`',
                'metadata.managedFields[0].fieldsType: Invalid value: "Y": must be `FieldsV1`',
                "metadata.managedFields[0].manager: Too long: may not be more than 128 bytes",
                "metadata.managedFields[0].subresource: Too long: may not be more than 256 bytes",
            ],
            id="managed fields",
        ),
        pytest.param(
            {"managedFields": [{"operation": "Apply", "manager": "ä\n"}]},
            [r'metadata.managedFields[0].manager: Invalid value: "ä\n": invalid character U+000A (at position 2)'],
            id="a manager with control characters",
        ),
    ],
)
def test_object_meta(meta, expected):
    found = validate_object_meta(convert(ObjectMeta, GOOD | meta), METADATA)
    assert [str(error) for error in found] == expected


def test_a_namespace_is_refused_where_there_are_none():
    found = validate_object_meta(convert(ObjectMeta, GOOD), METADATA, namespaced=False)
    assert [str(error) for error in found] == ["metadata.namespace: Forbidden: not allowed on this type"]


OLD = GOOD | {"resourceVersion": "1", "uid": "u", "generation": 2, "creationTimestamp": "2024-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param({}, {"labels": {"a": "b"}}, [], id="labels may change"),
        pytest.param(
            {},
            {"resourceVersion": ""},
            ['metadata.resourceVersion: Invalid value: "": must be specified for an update'],
            id="a version is needed",
        ),
        pytest.param(
            {},
            {"generation": 1},
            ["metadata.generation: Invalid value: 1: must not be decremented"],
            id="generations grow",
        ),
        pytest.param(
            {},
            {
                "name": "b",
                "namespace": "m",
                "uid": "v",
                "creationTimestamp": "2025-01-01T00:00:00Z",
                "deletionTimestamp": "2025-01-01T00:00:00Z",
                "deletionGracePeriodSeconds": 3,
            },
            [
                'metadata.name: Invalid value: "b": field is immutable',
                'metadata.namespace: Invalid value: "m": field is immutable',
                'metadata.uid: Invalid value: "v": field is immutable',
                'metadata.creationTimestamp: Invalid value: "2025-01-01T00:00:00Z": field is immutable',
                'metadata.deletionTimestamp: Invalid value: "2025-01-01T00:00:00Z": field is immutable',
                "metadata.deletionGracePeriodSeconds: Invalid value: 3: field is immutable",
            ],
            id="what never changes",
        ),
        pytest.param(
            {"deletionTimestamp": "2025-01-01T00:00:00Z"},
            {"deletionTimestamp": None},
            ["metadata.deletionTimestamp: Invalid value: null: field is immutable"],
            id="a deletion is final",
        ),
        pytest.param(
            {"deletionTimestamp": "2025-01-01T00:00:00Z", "finalizers": ["x/y"]},
            {"deletionTimestamp": "2025-01-01T00:00:00Z", "finalizers": ["x/y", "b/b", "a/a"]},
            [
                (
                    "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
                    'found new finalizers []string{"a/a", "b/b"}'
                )
            ],
            id="no new finalizers on the way out",
        ),
        pytest.param(
            {"finalizers": ["x/y"]},
            {"finalizers": ["z"]},
            [
                (
                    'metadata.finalizers[0]: Invalid value: "z": name is neither a standard '
                    "finalizer name nor is it fully "
                    "qualified"
                )
            ],
            id="finalizer names are checked again",
        ),
    ],
)
def test_object_meta_update(old, new, expected):
    found = validate_object_meta_update(convert(ObjectMeta, OLD | new), convert(ObjectMeta, OLD | old), METADATA)
    assert [str(error) for error in found] == expected


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        pytest.param("Pod", "a.b", "A", id="most kinds"),
        pytest.param("Namespace", "a", "a.b", id="namespaces are labels"),
        pytest.param("Service", "a1", "1a", id="services start with a letter"),
        pytest.param("ClusterRole", "system:A", "a/b", id="roles fit into a path"),
    ],
)
def test_names_by_kind(kind, good, bad):
    check = name_format_of(kind)
    assert not check(good)
    assert check(bad)
