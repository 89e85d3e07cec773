"""Manifests of static pods: decoded, defaulted and validated, from a file and from a URL.

A pod that is taken in must stay the same when it is written and read again, and its hash and identity can be computed.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

from klet.api.codec import convert, decode, encode, to_builtins
from klet.api.pod import Pod
from klet.api.static_pods import StaticOrigin
from klet.model.pods import format_pod, uid_of
from klet.runtime.hashing import container_hash
from klet.sources.decode import Origin, decode_pod, decode_pods
from klet.sources.gated_fields import GATED_FIELDS, drop_disabled_fields
from klet.testing.fuzz.mutators import amplify_bytes, change_bytes, change_json, change_lines, choose_of, put_words
from klet.testing.fuzz.target import Flaw, FuzzTarget, Limits, Run

Decode: TypeAlias = Callable[[bytes, Origin], tuple[Pod, ...]]

_POD: Final = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web",
        "namespace": "default",
        "labels": {"app": "web"},
        "annotations": {"a": "b"},
        "uid": "u-1",
    },
    "spec": {
        "containers": [
            {
                "name": "c",
                "image": "registry.k8s.io/pause:3.9",
                "command": ["sh", "-c", "echo $(A)"],
                "ports": [{"containerPort": 80, "hostPort": 8080, "name": "http", "protocol": "TCP"}],
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ],
                "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": 0.1}},
                "livenessProbe": {
                    "httpGet": {"path": "/", "port": "http", "httpHeaders": [{"name": "X", "value": "1"}]},
                    "periodSeconds": 5,
                },
                "readinessProbe": {"grpc": {"port": 9, "service": "s"}},
                "startupProbe": {"tcpSocket": {"port": 80}},
                "lifecycle": {"preStop": {"exec": {"command": ["true"]}}, "postStart": {"sleep": {"seconds": 1}}},
                "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "a/b", "readOnly": True}],
                "securityContext": {
                    "runAsUser": 1000,
                    "capabilities": {"add": ["NET_ADMIN"]},
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
            }
        ],
        "initContainers": [{"name": "i", "image": "i", "restartPolicy": "Always"}],
        "volumes": [
            {"name": "v", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "h", "hostPath": {"path": "/x", "type": "Directory"}},
            {
                "name": "p",
                "projected": {
                    "sources": [{"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}}]
                },
            },
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "hostNetwork": True,
        "dnsPolicy": "Default",
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
                }
            }
        },
        "securityContext": {"fsGroup": 1, "sysctls": [{"name": "net.ipv4.ip_forward", "value": "1"}]},
        "hostAliases": [{"ip": "127.0.0.1", "hostnames": ["a"]}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule"}],
    },
}
_YAML: Final = b"""\
apiVersion: v1
kind: Pod
metadata:
  name: web
  annotations: &a {k: v, yes: no}
spec:
  containers:
  - name: c
    image: !!str pause
    args: ["--x=0x1F", '1_000', ~]
    env: [{name: A, value: "1"}]
    resources: {limits: {cpu: 1e3m, memory: 0o17}}
  hostNetwork: on
---
ignored: true
"""
_BOMB: Final = b"a: &a [x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n<<: *a\n"
SEEDS: Final = (
    json.dumps(_POD).encode(),
    json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [_POD]}).encode(),
    _YAML,
    b"kind: Pod\napiVersion: v1\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n",
    b"apiVersion: v1\nkind: Pod\nspec: &s\n  containers: [*s]\n",
    _BOMB,
)
WORDS: Final = (
    b"&a ",
    b"*a",
    b"<<: *a",
    b"!!binary ",
    b"!!float .nan",
    b"!!int ",
    b"!!python/object/apply:os.system [x]",
    b"!<tag:yaml.org,2002:int> ",
    b".inf",
    b".nan",
    b"NaN",
    b"Infinity",
    b"1e400",
    b"0x",
    b"0b2",
    b"1__0",
    b"9" * 500,
    b"? ",
    b"- ",
    b"|2\n",
    b">-\n",
    b"%YAML 1.1\n",
    b"---",
    b"...",
    b'"\\ud800"',
    b'"\\x00"',
    b"\xef\xbb\xbf",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b"\xed\xa0\x80",
    b"\x00",
    b'{"a":1,"a":2}',
    b"[[[[",
    b"{{{{",
    b"]",
    b"}",
    b"kind: PodList\nitems: [{}]\n",
    b"#",
    b"'",
    b'"',
    b"@",
    b"`",
    b"2001-01-01",
    b"12:30:45",
    b"=",
)
KEYS: Final = (
    "name",
    "image",
    "containers",
    "metadata",
    "spec",
    "kind",
    "uid",
    "namespace",
    "volumes",
    "ports",
    "env",
    "hostPort",
    "items",
    "labels",
    "ephemeralContainers",
    "status",
    "resources",
    "resizePolicy",
    "claims",
    "nodeName",
    "deletionTimestamp",
    "schedulingGates",
    "os",
    "emptyDir",
    "configMap",
    "secret",
    "csi",
    "ephemeral",
    "image",
    "overhead",
    "podIPs",
    "a",
    "",
)
_ORIGINS: Final = (
    Origin(kind=StaticOrigin.FILE, location="/manifests/a.yaml", node_name="node"),
    Origin(kind=StaticOrigin.URL, location="http://h/a", node_name="node", prevent_api_references=False),
)


def manifests(decoder: Decode | None = None) -> FuzzTarget:
    """Return the target; another decoder than klet's shows that its faults are found."""
    read = decoder or decode_manifest

    @contextmanager
    def opened() -> Iterator[Run]:
        yield lambda data: check_manifest(read, data)

    return FuzzTarget(
        name="manifests",
        summary="manifests of static pods: YAML and JSON, defaults, validation",
        seeds=lambda: SEEDS,
        mutate=choose_of((change_json(KEYS), change_json(KEYS), change_bytes, change_lines, put_words(WORDS))),
        amplify=amplify_bytes(((b"{a: ", b"}"), (b"[*a,", b"]"), (b'{"items":[', b"]}"), (b"a: &a\n ", b""))),
        opened=opened,
        # A value costs a hundred times the byte or two that it was written in, and aliases a bounded sum on top.
        limits=Limits(text=64 << 10, memory=64 << 20, memory_per_byte=2048, seconds=10, largest=64 << 10),
    )


def decode_manifest(data: bytes, origin: Origin) -> tuple[Pod, ...]:
    """Decode as each of the two sources does it."""
    return (decode_pod(data, origin),) if origin.kind is StaticOrigin.FILE else decode_pods(data, origin)


def check_manifest(read: Decode, data: bytes) -> object:
    """Read the manifest; raises ManifestError or Flaw."""
    pods = read(data, _ORIGINS[len(data) % len(_ORIGINS)])
    for pod in pods:
        if decode(Pod, encode(pod)) != pod or convert(Pod, to_builtins(pod)) != pod:
            raise Flaw("a pod changes when it is written and read again")
        if "/" in uid_of(pod) or len(format_pod(pod)) > 1024:
            raise Flaw("a pod has an identity that no path may have")
        slim = drop_disabled_fields(pod, frozenset(GATED_FIELDS))
        for container in (*slim.spec.containers, *slim.spec.init_containers):
            container_hash(container)
    return len(pods) > 1
