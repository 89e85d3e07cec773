import json

import pytest
from msgspec.structs import replace

from klet.api.placement import Toleration
from klet.api.static_pods import StaticOrigin
from klet.api.validation.options import STATIC_POD
from klet.sources.decode import MAX_MANIFEST, Origin, decode_pod, decode_pods
from klet.sources.errors import ManifestError

FILE = Origin(kind=StaticOrigin.FILE, location="/m/web.yaml", node_name="node-1")
URL = Origin(kind=StaticOrigin.URL, location="http://h/pods?token=x", shown="http://h/pods", node_name="node-1")

WEB = b"""\
apiVersion: v1
kind: Pod
metadata:
  name: web
  annotations: {color: blue}
spec:
  containers:
  - name: app
    image: busybox:1
"""


def manifest(**changes) -> bytes:
    """A pod as JSON, with parts of it replaced; None takes a part out."""
    fields = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "app", "image": "busybox:1"}]},
        **changes,
    }
    return json.dumps({name: value for name, value in fields.items() if value is not None}).encode()


def test_a_pod_of_a_file_gets_its_identity_and_place():
    pod = decode_pod(WEB, FILE)
    assert pod.metadata.name == "web-node-1"
    assert pod.metadata.namespace == "default"
    assert pod.spec.node_name == "node-1"
    assert len(pod.metadata.uid) == 32
    assert pod.metadata.annotations == {"color": "blue", "kubernetes.io/config.hash": pod.metadata.uid}
    assert pod.spec.tolerations == (Toleration(operator="Exists", effect="NoExecute"),)
    assert pod.status.phase == "Pending"


def test_the_defaults_of_the_api_are_applied():
    pod = decode_pod(WEB, FILE)
    container = pod.spec.containers[0]
    assert (pod.spec.restart_policy, pod.spec.dns_policy, pod.spec.scheduler_name) == (
        "Always",
        "ClusterFirst",
        "default-scheduler",
    )
    assert pod.spec.termination_grace_period_seconds == 30
    assert pod.spec.enable_service_links is True
    assert pod.spec.security_context is not None
    assert container.termination_message_path == "/dev/termination-log"
    assert container.termination_message_policy == "File"
    assert container.image_pull_policy == "IfNotPresent"


def test_a_pod_of_a_url_gets_no_toleration():
    (pod,) = decode_pods(WEB, URL)
    assert pod.spec.tolerations == ()


def uid(data: bytes, **changes) -> str:
    fields = {"kind": StaticOrigin.FILE, "location": "/m/web.yaml", "node_name": "n", **changes}
    return decode_pods(data, Origin(**fields))[0].metadata.uid


def test_the_uid_follows_content_path_and_node():
    assert uid(WEB) == uid(WEB)
    assert uid(WEB) == uid(WEB + b"# a comment\n")
    assert uid(WEB) != uid(WEB.replace(b"blue", b"red"))
    assert uid(WEB) != uid(WEB, location="/m/other.yaml")
    assert uid(WEB) != uid(WEB, node_name="m")


def test_the_uid_of_a_url_is_the_same_on_all_nodes():
    assert uid(WEB, kind=StaticOrigin.URL) == uid(WEB, kind=StaticOrigin.URL, node_name="m")
    assert uid(WEB, kind=StaticOrigin.URL) != uid(WEB, kind=StaticOrigin.URL, location="http://other")


def test_a_uid_in_the_manifest_is_kept():
    pod = decode_pod(manifest(metadata={"name": "web", "uid": "my-own", "namespace": "kube-system"}), FILE)
    assert pod.metadata.uid == "my-own"
    assert pod.metadata.namespace == "kube-system"
    assert pod.metadata.annotations["kubernetes.io/config.hash"] == "my-own"


def test_an_unknown_field_is_ignored():
    assert decode_pod(manifest(colour="blue"), FILE).metadata.name == "web-node-1"


def test_only_the_first_document_counts():
    assert decode_pod(WEB + b"---\nkind: Service\n", FILE).metadata.name == "web-node-1"


def test_a_toleration_with_a_time_limit_is_replaced():
    limited = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    spec = {
        "containers": [{"name": "app", "image": "b:1"}],
        "tolerations": [limited, {"key": "a", "operator": "Exists"}],
    }
    pod = decode_pod(manifest(spec=spec), FILE)
    assert pod.spec.tolerations == (
        Toleration(operator="Exists", effect="NoExecute"),
        Toleration(key="a", operator="Exists"),
    )


UID_RULE = "must be at most 253 letters, digits, '-' and '.', and begin and end with a letter or digit"


def spec(**changes) -> dict:
    return {"containers": [{"name": "app", "image": "busybox:1"}], **changes}


@pytest.mark.parametrize(
    ("data", "problems"),
    [
        pytest.param(b"", ["the text is not an object"], id="nothing"),
        pytest.param(b"[1]", ["the text is not an object"], id="no object"),
        pytest.param(b"\xff\xfe", ["the text is not UTF-8 (line 1, column 1): save it as UTF-8"], id="not text"),
        pytest.param(
            b"kind: Pod\na: b: c\n",
            ["error converting YAML to JSON: yaml: line 2: mapping values are not allowed in this context"],
            id="not YAML",
        ),
        pytest.param(b"[" * 1000, ["yaml: line 1: nested more than 100 deep"], id="too deep"),
        pytest.param(b"x" * (MAX_MANIFEST + 1), [f"the manifest is longer than {MAX_MANIFEST} bytes"], id="too long"),
        pytest.param(manifest(kind=None), ["kind: Required value: must be Pod"], id="no kind"),
        pytest.param(manifest(kind="Service"), ["kind: 'Service' is not Pod"], id="another kind"),
        pytest.param(manifest(kind="PodList"), ["kind: 'PodList' is not Pod"], id="a list"),
        pytest.param(manifest(apiVersion="v2"), ["apiVersion: 'v2' is not v1"], id="another version"),
        pytest.param(manifest(metadata={}), ["metadata.name: invalid pod: name is needed for the pod"], id="no name"),
        pytest.param(
            manifest(spec=spec(containers=[{"name": "app", "image": 5}])),
            ["spec.containers[0].image: Expected `str`, got `int`"],
            id="a field of the wrong type",
        ),
        pytest.param(manifest(spec=[]), ["spec: Expected `object`, got `array`"], id="a part of the wrong type"),
        pytest.param(
            manifest(spec=spec(containers=[{"name": "a", "image": "b:1"}, {"name": "a", "image": "b:1"}])),
            ['spec.containers[1].name: Duplicate value: "a"'],
            id="two containers of one name",
        ),
        pytest.param(manifest(spec={}), ["spec.containers: Required value"], id="no containers"),
        pytest.param(
            manifest(spec=spec(restartPolicy="Sometimes", containers=[{"name": "app"}])),
            [
                "spec.containers[0].image: Required value",
                'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
            ],
            id="every broken rule is reported",
        ),
        pytest.param(
            manifest(metadata={"name": "web", "uid": "../etc"}),
            [f"metadata.uid: Invalid value: {UID_RULE}"],
            id="a uid that is no name for a directory",
        ),
        pytest.param(
            manifest(spec=spec(serviceAccountName="robot")),
            ["static pods may not reference serviceaccounts"],
            id="a reference to an API object",
        ),
    ],
)
def test_a_bad_manifest(data, problems):
    with pytest.raises(ManifestError) as caught:
        decode_pod(data, FILE)
    assert [str(problem) for problem in caught.value.problems] == problems
    shown = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
    assert str(caught.value) == f"/m/web.yaml: document 1: {shown}"


def test_a_bad_quantity_names_its_field():
    limits = {"limits": {"cpu": "1", "memory": "lots"}}
    data = manifest(spec=spec(containers=[{"name": "app", "image": "b:1", "resources": limits}]))
    with pytest.raises(ManifestError) as caught:
        decode_pod(data, FILE)
    assert caught.value.problems[0].field == "spec.containers[0].resources.limits[memory]"


def pod_list(*pods: bytes) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [json.loads(pod) for pod in pods]}).encode()


@pytest.mark.parametrize(
    ("data", "names"),
    [
        pytest.param(WEB, ["web-node-1"], id="one pod"),
        pytest.param(pod_list(), [], id="an empty list"),
        pytest.param(
            pod_list(manifest(), manifest(metadata={"name": "db"}, kind=None, apiVersion=None)),
            ["web-node-1", "db-node-1"],
            id="a list, whose items need not say their kind",
        ),
        pytest.param(b"apiVersion: v1\nkind: PodList\n", [], id="a list without items"),
    ],
)
def test_decode_pods(data, names):
    assert [pod.metadata.name for pod in decode_pods(data, URL)] == names


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(
            pod_list(manifest(), manifest(metadata={})),
            "items[1].metadata.name: invalid pod: name is needed for the pod",
            id="one invalid pod rejects the whole list",
        ),
        pytest.param(
            pod_list(manifest(spec=spec(containers=[{"name": 1}]))),
            "items[0].spec.containers[0].name: Expected `str`, got `int`",
            id="a wrong type in the list",
        ),
        pytest.param(
            pod_list(manifest(spec=spec(serviceAccountName="x"))),
            "items[0]: static pods may not reference serviceaccounts",
            id="a reference in the list",
        ),
        pytest.param(b'{"apiVersion":"v1","kind":"PodList","items":[1]}', "items[0]: Expected `object`", id="an item"),
        pytest.param(b'{"apiVersion":"v1","kind":"PodList","items":1}', "items: Expected `array`", id="no list"),
        pytest.param(b'{"apiVersion":"v1","kind":"List","items":[]}', "kind: 'List' is not Pod", id="another list"),
    ],
)
def test_bad_lists(data, message):
    with pytest.raises(ManifestError) as caught:
        decode_pods(data, URL)
    assert str(caught.value) == f"http://h/pods: document 1: {message}"


def test_rules_that_a_gate_switches():
    strict = replace(FILE, options=replace(STATIC_POD, container_restart_rules=False))
    own = manifest(spec=spec(containers=[{"name": "app", "image": "busybox:1", "restartPolicy": "Never"}]))
    assert decode_pod(own, FILE)
    with pytest.raises(ManifestError, match="restartPolicy: Forbidden: may not be set for non-init containers"):
        decode_pod(own, strict)


def test_without_the_gate_only_two_uses_are_refused_and_none_in_a_list():
    lax = Origin(kind=StaticOrigin.URL, location="u", node_name="n", prevent_api_references=False)
    claims = spec(resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])
    assert decode_pods(manifest(spec=spec(serviceAccountName="x")), lax)
    assert decode_pods(pod_list(manifest(spec=claims)), lax)
    with pytest.raises(ManifestError, match="static pods may not use ResourceClaims"):
        decode_pods(manifest(spec=claims), lax)


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"name": "\x01" * 1_000_000}, id="a long name"),
        pytest.param({"name": "p", "labels": {f"-{number}": "" for number in range(1000)}}, id="many bad labels"),
        pytest.param(
            {
                "name": "p",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "K", "name": "n" * 1000, "uid": "u", "controller": True}
                ]
                * 1000,
            },
            id="many owners, each of which is reported of them all",
        ),
        pytest.param({"name": "p", "finalizers": ["x" * 100_000]}, id="a long finalizer"),
    ],
)
def test_what_is_wrong_is_reported_in_bounded_length(metadata):
    with pytest.raises(ManifestError) as caught:
        decode_pod(manifest(metadata=metadata), Origin(kind=StaticOrigin.FILE, location="/p", node_name="n"))
    assert len(str(caught.value).encode()) <= 64 * 1024


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(
            {
                "containers": [
                    {
                        "name": "c",
                        "image": "i",
                        "restartPolicy": "Never",
                        "restartPolicyRules": [
                            {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
                        ],
                    }
                ]
            },
            id="a rule that restarts all containers",
        ),
        pytest.param({"tolerations": [{"key": "k", "operator": "Gt", "value": "5"}]}, id="a toleration that compares"),
    ],
)
def test_what_gates_allow(fields):
    data = manifest(spec=spec(**fields))
    with pytest.raises(ManifestError, match="Unsupported value"):
        decode_pod(data, FILE)
    allowed = replace(STATIC_POD, restart_all_containers=True, taint_comparisons=True)
    assert decode_pod(data, replace(FILE, options=allowed))
