import pytest

from klet.api.validation import formats

[SUBDOMAIN] = formats.dns_subdomain("A")
[KEY] = formats.config_key("a b")
[ENV] = formats.env_name("a=b")
FIELDS = (
    '"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", '
    '"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"'
)
E = "spec.containers[0].env[0]"
F = "spec.containers[0].envFrom"
VOLUMES = {"volumes": [{"name": "files"}, {"name": "host", "hostPath": {"path": "/x"}}]}


def source(**fields):
    return {"name": "A", "valueFrom": fields}


def file_key(**fields):
    return source(fileKeyRef={"key": "K", "volumeName": "files", "path": "a", **fields})


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        pytest.param({"name": "a.b-c d", "value": "x"}, [], id="relaxed names"),
        pytest.param({"name": ""}, [f"{E}.name: Required value"], id="a name is needed"),
        pytest.param({"name": "a=b"}, [f'{E}.name: Invalid value: "a=b": {ENV}'], id="an equals sign"),
        pytest.param(source(fieldRef={"fieldPath": "status.podIPs"}), [], id="a field"),
        pytest.param(source(fieldRef={"fieldPath": "metadata.labels['a']"}), [], id="a label"),
        pytest.param(source(fieldRef={"fieldPath": "spec.host"}), [], id="the old name of the node"),
        pytest.param(
            source(fieldRef={"fieldPath": "metadata.labels"}),
            [f'{E}.valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels": supported values: {FIELDS}'],
            id="all labels do not fit a variable",
        ),
        pytest.param(source(resourceFieldRef={"resource": "limits.cpu"}), [], id="a resource of this container"),
        pytest.param(
            source(),
            [
                (
                    f'{E}.valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, '
                    "`configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
                )
            ],
            id="no source",
        ),
        pytest.param(
            {**source(fieldRef={"fieldPath": "metadata.name"}), "value": "x"},
            [f'{E}.valueFrom: Invalid value: "": may not be specified when `value` is not empty'],
            id="value and source",
        ),
        pytest.param(
            source(fieldRef={"fieldPath": "metadata.name"}, secretKeyRef={"name": "s", "key": "k"}),
            [f'{E}.valueFrom: Invalid value: "": may not have more than one field specified at a time'],
            id="two sources",
        ),
        pytest.param(
            source(configMapKeyRef={"name": "A", "key": ""}),
            [
                f'{E}.valueFrom.configMapKeyRef.name: Invalid value: "A": {SUBDOMAIN}',
                f"{E}.valueFrom.configMapKeyRef.key: Required value",
            ],
            id="a config map key",
        ),
        pytest.param(
            source(secretKeyRef={"name": "", "key": "a b"}),
            [
                f'{E}.valueFrom.secretKeyRef.name: Invalid value: "": {SUBDOMAIN}',
                f'{E}.valueFrom.secretKeyRef.key: Invalid value: "a b": {KEY}',
            ],
            id="a secret key",
        ),
        pytest.param(file_key(), [], id="a key in a file"),
        pytest.param(
            file_key(key="", volumeName="", path=""),
            [
                f"{E}.valueFrom.fileKeyRef.key: Required value",
                f"{E}.valueFrom.fileKeyRef.volumeName: Required value",
                f"{E}.valueFrom.fileKeyRef.path: Required value",
            ],
            id="a file key needs key, volume and path",
        ),
        pytest.param(
            file_key(volumeName="x", path="../a"),
            [
                f'{E}.valueFrom.fileKeyRef.volumeName: Not found: "x"',
                f"{E}.valueFrom.fileKeyRef.path: Invalid value: \"../a\": must not contain '..'",
            ],
            id="a file in no volume",
        ),
        pytest.param(
            file_key(volumeName="host"),
            [f'{E}.valueFrom.fileKeyRef.volumeName: Invalid value: "host": referenced volume must be of type emptyDir'],
            id="a file on the host",
        ),
    ],
)
def test_env(container_errors, variable, expected):
    assert container_errors({"env": [variable]}, VOLUMES) == expected


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        pytest.param({"prefix": "A_", "configMapRef": {"name": "c"}}, [], id="a config map"),
        pytest.param({"configMapRef": {"name": "c-"}}, [], id="names are checked as prefixes"),
        pytest.param(
            {"prefix": "=", "configMapRef": {"name": "A"}},
            [
                f'{F}[0].prefix: Invalid value: "=": {ENV}',
                f'{F}[0].configMapRef.name: Invalid value: "A": {SUBDOMAIN}',
            ],
            id="a bad prefix and name",
        ),
        pytest.param({"secretRef": {}}, [f"{F}[0].secretRef.name: Required value"], id="a secret without a name"),
        pytest.param(
            {}, [f'{F}: Invalid value: "": must specify one of: `configMapRef` or `secretRef`'], id="no reference"
        ),
        pytest.param(
            {"configMapRef": {"name": "c"}, "secretRef": {"name": "s"}},
            [f'{F}: Invalid value: "": may not have more than one field specified at a time'],
            id="two references",
        ),
    ],
)
def test_env_from(container_errors, reference, expected):
    assert container_errors({"envFrom": [reference]}) == expected
