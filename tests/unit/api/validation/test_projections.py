import pytest

from klet.api.validation import formats

[SUBDOMAIN] = formats.dns_subdomain("A")
MODE = "must be a number between 0 and 0777 (octal), both inclusive"
FIELDS = '"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"'
RESOURCES = (
    '"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", '
    '"requests.memory"'
)
SIZES = "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the"
NAME = {"fieldRef": {"fieldPath": "metadata.name"}}
D = "spec.volumes[0].downwardAPI"
P = "spec.volumes[0].projected"


def resource(name, divisor="0", container="c"):
    return {"path": "p", "resourceFieldRef": {"containerName": container, "resource": name, "divisor": divisor}}


def field(path, version="v1"):
    return {"path": "p", "fieldRef": {"fieldPath": path, "apiVersion": version}}


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        pytest.param({"path": "a", **NAME}, [], id="a field"),
        pytest.param(
            {"path": "", **NAME}, [f"{D}.path: Required value"], id="a path is needed, and printed without position"
        ),
        pytest.param(
            {"path": "/a", **NAME}, [f'{D}.path: Invalid value: "/a": must be a relative path'], id="a local path"
        ),
        pytest.param({"path": "a", "mode": 512, **NAME}, [f"{D}.mode: Invalid value: 512: {MODE}"], id="a mode"),
        pytest.param(
            {"path": "a"}, [f"{D}: Required value: one of fieldRef and resourceFieldRef is required"], id="no reference"
        ),
        pytest.param(
            {**NAME, **resource("limits.cpu")},
            [f'{D}: Invalid value: "resource": fieldRef and resourceFieldRef can not be specified simultaneously'],
            id="two references",
        ),
        pytest.param(field("metadata.labels['a.b/c']"), [], id="one label"),
        pytest.param(field("metadata.annotations['A/b']"), [], id="annotation keys in any case"),
        pytest.param(
            field("metadata.labels['']"),
            [f'{D}.fieldRef: Invalid value: "": {message}' for message in formats.label_key("")],
            id="a label with an empty key",
        ),
        pytest.param(
            field("spec.nodeName"),
            [f'{D}.fieldRef.fieldPath: Unsupported value: "spec.nodeName": supported values: {FIELDS}'],
            id="a field that volumes cannot show",
        ),
        pytest.param(
            field("x"),
            [f'{D}.fieldRef.fieldPath: Invalid value: "x": error converting fieldPath: field label not supported: x'],
            id="an unknown field",
        ),
        pytest.param(
            field("spec.nodeName['a']"),
            [
                (
                    f"{D}.fieldRef.fieldPath: Invalid value: \"spec.nodeName['a']\": error converting fieldPath: "
                    "field label does not support subscript: spec.nodeName['a']"
                )
            ],
            id="a subscript where none is possible",
        ),
        pytest.param(
            field("metadata.name", "v2"),
            [
                (
                    f'{D}.fieldRef.fieldPath: Invalid value: "metadata.name": error converting fieldPath: '
                    "unsupported pod version: v2"
                )
            ],
            id="another version",
        ),
        pytest.param(field(""), [f"{D}.fieldRef.fieldPath: Required value"], id="an empty field"),
        pytest.param(resource("limits.cpu", "1m"), [], id="thousandths of a CPU"),
        pytest.param(resource("requests.hugepages-2Mi", "1Mi"), [], id="huge pages"),
        pytest.param(
            resource("limits.cpu", container=""),
            [f"{D}.resourceFieldRef.containerName: Required value"],
            id="volumes must name the container",
        ),
        pytest.param(resource(""), [f"{D}.resourceFieldRef.resource: Required value"], id="no resource"),
        pytest.param(
            resource("limits.x"),
            [f'{D}.resourceFieldRef.resource: Unsupported value: "limits.x": supported values: {RESOURCES}'],
            id="an unknown resource",
        ),
        pytest.param(
            resource("limits.cpu", "2m"),
            [
                (
                    f'{D}.resourceFieldRef.divisor: Invalid value: "limits.cpu": '
                    "only divisor's values 1m and 1 are supported with the cpu resource"
                )
            ],
            id="an odd divisor for CPUs",
        ),
        pytest.param(
            resource("limits.memory", "1m"),
            [f'{D}.resourceFieldRef.divisor: Invalid value: "limits.memory": {SIZES} memory resource'],
            id="an odd divisor for memory",
        ),
        pytest.param(
            resource("requests.ephemeral-storage", "2"),
            [
                (
                    f'{D}.resourceFieldRef.divisor: Invalid value: "requests.ephemeral-storage": '
                    f"{SIZES} local ephemeral storage resource"
                )
            ],
            id="an odd divisor for storage",
        ),
        pytest.param(
            resource("limits.hugepages-2Mi", "2"),
            [f'{D}.resourceFieldRef.divisor: Invalid value: "limits.hugepages-2Mi": {SIZES} hugepages resource'],
            id="an odd divisor for huge pages",
        ),
    ],
)
def test_downward_api_files(errors_of, file, expected):
    assert errors_of({"spec": {"volumes": [{"name": "v", "downwardAPI": {"items": [file]}}]}}) == expected


def test_a_field_needs_its_version(errors_of):
    volume = {"name": "v", "downwardAPI": {"items": [{"path": "p", **NAME}]}}
    assert f"{D}.fieldRef.apiVersion: Required value" in errors_of({"spec": {"volumes": [volume]}}, defaults=False)


def items(name, *paths):
    return {"name": name, "items": [{"key": "k", "path": path} for path in paths]}


@pytest.mark.parametrize(
    ("projected", "expected"),
    [
        pytest.param({"defaultMode": 512}, [f"{P}.defaultMode: Invalid value: 512: {MODE}"], id="a mode"),
        pytest.param(
            {"sources": [{"secret": {}, "configMap": {}}]},
            [
                f"{P}.sources[0].secret.name: Required value",
                f"{P}.sources[0].configMap.name: Required value",
                f"{P}.sources[0]: Forbidden: may not specify more than 1 volume type per source",
            ],
            id="one kind a source",
        ),
        pytest.param(
            {"sources": [{"secret": items("s", "a", "a")}, {"configMap": items("c", "a")}]},
            [
                f'{P}: Invalid value: "s": conflicting duplicate paths',
                f'{P}: Invalid value: "c": conflicting duplicate paths',
            ],
            id="a path is taken once",
        ),
        pytest.param(
            {"sources": [{"secret": items("s", "a")}, {"downwardAPI": {"items": [{"path": "a", **NAME}]}}]},
            [f'{P}: Invalid value: "a": conflicting duplicate paths'],
            id="downward files are among the paths",
        ),
        pytest.param(
            {"sources": [{"downwardAPI": {"items": [{"path": ""}]}}]},
            [
                f"{P}.sources[0].downwardAPI.path: Required value",
                f"{P}.sources[0].downwardAPI: Required value: one of fieldRef and resourceFieldRef is required",
            ],
            id="downward files in a projection",
        ),
        pytest.param({"sources": [{"serviceAccountToken": {"path": "t"}}]}, [], id="a token"),
        pytest.param(
            {"sources": [{"serviceAccountToken": {"path": "", "expirationSeconds": 599}}]},
            [
                (
                    f"{P}.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 599: "
                    "may not specify a duration less than 10 minutes"
                ),
                f"{P}.path: Required value",
            ],
            id="a short-lived token without a path",
        ),
        pytest.param(
            {"sources": [{"serviceAccountToken": {"path": "/t", "expirationSeconds": 2**32 + 1}}]},
            [
                (
                    f"{P}.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 4294967297: "
                    "may not specify a duration larger than 2^32 seconds"
                ),
                f'{P}.path: Invalid value: "/t": must be a relative path',
            ],
            id="a token for ever",
        ),
        pytest.param(
            {"sources": [{"clusterTrustBundle": {"path": ""}}]},
            [
                f"{P}.sources[0].clusterTrustBundle: Required value: either name or signerName must be specified",
                f"{P}.sources[0].clusterTrustBundle.path: Required value",
            ],
            id="a trust bundle of nobody",
        ),
        pytest.param(
            {"sources": [{"clusterTrustBundle": {"path": "a", "name": "n", "signerName": "s"}}]},
            [
                (
                    f"{P}.sources[0].clusterTrustBundle: Invalid value: "
                    f'{{"Name":"n","SignerName":"s","LabelSelector":null,'
                    '"Optional":null,"Path":"a"}: only one of name and signerName may be used'
                )
            ],
            id="a trust bundle of two",
        ),
        pytest.param(
            {
                "sources": [
                    {"clusterTrustBundle": {"path": "a", "name": "A", "labelSelector": {"matchLabels": {"a": "b"}}}}
                ]
            },
            [
                (
                    f'{P}.sources[0].clusterTrustBundle.name: Invalid value: "A": not a valid '
                    f"clustertrustbundlename: {SUBDOMAIN}"
                ),
                (
                    f'{P}.sources[0].clusterTrustBundle.labelSelector: Invalid value: {{"matchLabels":{{"a":"b"}}}}: '
                    "labelSelector must be unset if name is specified"
                ),
            ],
            id="a named trust bundle is not selected",
        ),
        pytest.param(
            {"sources": [{"clusterTrustBundle": {"path": "a", "name": ""}}]},
            [
                f"{P}.sources[0].clusterTrustBundle.name: Required value: must be a valid object name",
                (
                    f'{P}.sources[0].clusterTrustBundle.name: Invalid value: "": not a valid '
                    f"clustertrustbundlename: {SUBDOMAIN}"
                ),
            ],
            id="a trust bundle without a name",
        ),
        pytest.param(
            {"sources": [{"clusterTrustBundle": {"path": "a", "signerName": ""}}]},
            [
                f"{P}.sources[0].clusterTrustBundle.signerName: Required value: must be a valid signer name",
                f"{P}.sources[0].clusterTrustBundle.signerName: Required value",
            ],
            id="a trust bundle without a signer",
        ),
        pytest.param(
            {"sources": [{"clusterTrustBundle": {"path": "a", "signerName": "example.com/s"}}]},
            [],
            id="a signer's bundle",
        ),
        pytest.param(
            {"sources": [{"clusterTrustBundle": {"path": "a", "signerName": "x"}}]},
            [
                (
                    f'{P}.sources[0].clusterTrustBundle.signerName: Invalid value: "x": '
                    "must be a fully qualified domain and path of the form 'example.com/signer-name'"
                )
            ],
            id="a signer without a path",
        ),
        pytest.param(
            {"sources": [{"clusterTrustBundle": {"path": "a", "signerName": "com/-"}}]},
            [
                (
                    f'{P}.sources[0].clusterTrustBundle.signerName: Invalid value: "com": '
                    "should be a domain with at least two segments separated by dots"
                ),
                (
                    f'{P}.sources[0].clusterTrustBundle.signerName: Invalid value: "-": validating '
                    "label should be a DNS label"
                ),
            ],
            id="a signer with a bad domain and path",
        ),
    ],
)
def test_projected_volume(errors_of, projected, expected):
    assert errors_of({"spec": {"volumes": [{"name": "v", "projected": projected}]}}) == expected


CERTIFICATE = {"signerName": "example.com/s", "keyType": "ED25519", "keyPath": "key"}
PC = f"{P}.sources[0].podCertificate"
KEY_TYPES = '"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"'


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, [], id="the least that is needed"),
        pytest.param({"maxExpirationSeconds": 91 * 86400, "userAnnotations": {"Example.com/A": "b"}}, [],
                     id="all of it"),
        pytest.param({"signerName": ""}, [f"{PC}.signerName: Required value"], id="no signer"),
        pytest.param({"keyType": "RSA2048"},
                     [f'{PC}.keyType: Unsupported value: "RSA2048": supported values: {KEY_TYPES}'], id="a short key"),
        pytest.param({"maxExpirationSeconds": 3599}, [(f"{PC}.maxExpirationSeconds: Invalid value: 3599: if provided, "
                     "maxExpirationSeconds must be >= 3600")], id="too short"),
        pytest.param({"maxExpirationSeconds": 91 * 86400 + 1}, [(f"{PC}.maxExpirationSeconds: Invalid value: 7862401: "
                     "if provided, maxExpirationSeconds must be <= 7862400")], id="too long"),
        pytest.param({"signerName": "a.kubernetes.io/s", "maxExpirationSeconds": 86401},
                     [(f"{PC}.maxExpirationSeconds: Invalid value: 86401: if provided, maxExpirationSeconds must be "
                      "<= 86400")], id="too long for a signer of Kubernetes"),
        pytest.param({"keyPath": ""}, [(f"{PC}: Required value: specify at least one of credentialBundlePath, keyPath, "
                     "and certificateChainPath")], id="no file"),
        pytest.param({"keyPath": "/a", "certificateChainPath": "..b", "credentialBundlePath": "a/../b"}, [
            f'{PC}.credentialBundlePath: Invalid value: "a/../b": must not contain \'..\'',
            f'{PC}.keyPath: Invalid value: "/a": must be a relative path',
            f'{PC}.certificateChainPath: Invalid value: "..b": must not start with \'..\'',
        ], id="files elsewhere"),
        pytest.param({"certificateChainPath": "key"}, [f'{P}: Invalid value: "key": conflicting duplicate paths'],
                     id="one file for two"),
        pytest.param({"userAnnotations": {"team": "a"}}, [(f'{PC}.userAnnotations: Invalid value: "team": must be a '
                     'domain-prefixed key (such as "acme.io/foo")')], id="an annotation of nobody"),
        pytest.param({"userAnnotations": {"": "a"}}, [f"{PC}.userAnnotations: Required value"], id="no key"),
        pytest.param({"userAnnotations": {"a.b/c": "x" * 262144}},
                     [f"{PC}.userAnnotations: Too long: may not be more than 262144 bytes"], id="too much"),
    ],
)  # fmt: skip
def test_pod_certificate(errors_of, changes, expected):
    source = {"podCertificate": CERTIFICATE | changes}
    projected = {"sources": [source]}
    assert errors_of({"spec": {"volumes": [{"name": "v", "projected": projected}]}}) == expected
