import pytest

from klet.api.validation import formats

[LABEL] = formats.dns_label("A")
[SUBDOMAIN] = formats.dns_subdomain("A")
[NAME_PART] = formats.label_key("-a")
MODES = '"ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"'
T = "spec.volumes[0].ephemeral.volumeClaimTemplate"
GOOD = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
C = "spec.resourceClaims"


def shown(name, claim="null", template="null"):
    return f'{{"Name":"{name}","ResourceClaimName":{claim},"ResourceClaimTemplateName":{template}}}'


BOTH = shown("a", '"A"', '"A"')


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        pytest.param(
            [{"name": "a", "resourceClaimName": "x"}, {"name": "b", "resourceClaimTemplateName": "y"}], [], id="good"
        ),
        pytest.param([{"name": "", "resourceClaimName": "x"}], [f"{C}[0].name: Required value"], id="a name is needed"),
        pytest.param(
            [{"name": "A", "resourceClaimName": "x"}],
            [f'{C}[0].name: Invalid value: "A": {LABEL}'],
            id="the name is a label",
        ),
        pytest.param(
            [{"name": "a", "resourceClaimName": "x"}] * 2, [f'{C}[1].name: Duplicate value: "a"'], id="names are unique"
        ),
        pytest.param(
            [{"name": "a"}],
            [
                (
                    f"{C}[0]: Invalid value: {shown('a')}: must specify one of: `resourceClaimName`, "
                    "`resourceClaimTemplateName`"
                )
            ],
            id="one reference is needed",
        ),
        pytest.param(
            [{"name": "a", "resourceClaimName": "A", "resourceClaimTemplateName": "A"}],
            [
                (
                    f"{C}[0]: Invalid value: {BOTH}: at most one of `resourceClaimName` or "
                    "`resourceClaimTemplateName` may be specified"
                ),
                f'{C}[0].resourceClaimName: Invalid value: "A": {SUBDOMAIN}',
                f'{C}[0].resourceClaimTemplateName: Invalid value: "A": {SUBDOMAIN}',
            ],
            id="one reference is enough",
        ),
    ],
)
def test_resource_claims(errors_of, claims, expected):
    assert errors_of({"spec": {"resourceClaims": claims}}) == expected


@pytest.mark.parametrize(
    ("metadata", "spec", "expected"),
    [
        pytest.param({"labels": {"a": "b"}, "annotations": {"c": "d"}}, {}, [], id="labels and annotations may be set"),
        pytest.param(
            {"labels": {"-a": "b"}, "annotations": {"-a": "b"}},
            {},
            [
                f'{T}.metadata.annotations: Invalid value: "-a": {NAME_PART}',
                f'{T}.metadata.labels: Invalid value: "-a": {NAME_PART}',
            ],
            id="labels and annotations are checked",
        ),
        pytest.param(
            {"name": "x", "finalizers": ["a/b"]},
            {},
            [f"{T}.metadata.name: Forbidden: cannot be set", f"{T}.metadata.finalizers: Forbidden: cannot be set"],
            id="nothing else may be set",
        ),
        pytest.param(
            {},
            {"accessModes": [], "resources": {}},
            [
                f"{T}.spec.accessModes: Required value: at least 1 access mode is required",
                f"{T}.spec.resources[storage]: Required value",
            ],
            id="modes and size are needed",
        ),
        pytest.param(
            {},
            {"accessModes": ["x"], "resources": {"requests": {"storage": "0"}}, "volumeMode": "y"},
            [
                f'{T}.spec.accessModes: Unsupported value: "x": supported values: {MODES}',
                f'{T}.spec.resources[storage]: Invalid value: "0": must be greater than zero',
                f'{T}.spec.volumeMode: Unsupported value: "y": supported values: "Block", "Filesystem"',
            ],
            id="unknown modes",
        ),
        pytest.param(
            {},
            {"accessModes": ["ReadWriteOnce", "ReadWriteOncePod"]},
            [f"{T}.spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"],
            id="one pod only",
        ),
        pytest.param(
            {},
            {
                "selector": {"matchLabels": {"-a": "b"}},
                "storageClassName": "A",
                "volumeAttributesClassName": "A",
            },
            [
                f'{T}.spec.selector.matchLabels: Invalid value: "-a": {NAME_PART}',
                f'{T}.spec.storageClassName: Invalid value: "A": {SUBDOMAIN}',
                f'{T}.spec.volumeAttributesClassName: Invalid value: "A": {SUBDOMAIN}',
            ],
            id="selector and classes",
        ),
        pytest.param(
            {},
            {"dataSource": {}},
            [
                f"{T}.spec.dataSource.name: Required value",
                f"{T}.spec.dataSource.kind: Required value",
                (
                    f"{T}.spec.dataSource: Invalid value: \"\": must be 'PersistentVolumeClaim' "
                    "when referencing the default "
                    "apiGroup"
                ),
            ],
            id="an empty data source",
        ),
        pytest.param(
            {},
            {
                "dataSource": {"kind": "PersistentVolumeClaim", "name": "x"},
                "dataSourceRef": {"kind": "K", "name": "x", "apiGroup": "A", "namespace": "A"},
            },
            [
                f'{T}.spec.dataSourceRef.apiGroup: Invalid value: "A": {SUBDOMAIN}',
                f'{T}.spec.dataSourceRef.namespace: Invalid value: "A": {LABEL}',
                (
                    f'{T}.spec: Invalid value: "{T}.spec.dataSource": may not be specified when '
                    "dataSourceRef.namespace is "
                    "specified"
                ),
            ],
            id="a data source in another namespace",
        ),
        pytest.param(
            {},
            {
                "dataSource": {"kind": "PersistentVolumeClaim", "name": "x"},
                "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "y"},
            },
            [f'{T}.spec: Invalid value: "{T}.spec.dataSource": must match dataSourceRef'],
            id="two data sources",
        ),
    ],
)
def test_claim_template(errors_of, metadata, spec, expected):
    template = {"metadata": metadata, "spec": GOOD | spec}
    assert errors_of({"spec": {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]}}) == expected
