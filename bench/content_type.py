"""What protobuf from the API server would save: decoding of a list of 100 pods and of one watch event, to structs.

    python -m bench.content_type --api DIRECTORY --apimachinery DIRECTORY

The directories are the modules k8s.io/api and k8s.io/apimachinery of a release, as Go keeps them. The protobuf side is
the C runtime (upb) and a converter that was prepared for each type, as klet would have to have one.
"""

import argparse
import importlib
import sys
import tempfile
import timeit
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
from grpc_tools import protoc

from klet.api.codec import decode
from klet.api.pod import Pod, PodList
from klet.api.quantity import Quantity
from klet.api.times import Time

TIME = "2030-01-01T00:00:00Z"
META = "k8s.io.apimachinery.pkg.apis.meta.v1"
QUANTITY = "k8s.io.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "k8s.io.apimachinery.pkg.util.intstr.IntOrString"
PODS = 100


def build_pod(number: int) -> dict[str, Any]:
    """A pod of a deployment as an API server shows it: two containers, a token, probes, tolerations, a full status."""
    mounts = [
        {"name": "config", "mountPath": "/etc/app", "readOnly": True},
        {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True},
    ]
    probe = {
        "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    container = {
        "image": "registry.example.com/team/app:1.2.3",
        "args": ["--listen=:8080", "--config=/etc/app/config.yaml"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": f"VARIABLE_{each}", "value": f"value-{each}"} for each in range(8)],
        "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
        "volumeMounts": mounts,
        "livenessProbe": probe,
        "readinessProbe": probe,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    fields: dict[str, object] = {f"f:field{each}": {".": {}, "f:name": {}, "f:value": {}} for each in range(40)}
    return {
        "metadata": {
            "name": f"app-6d4b75cb6d-{number:05}",
            "generateName": "app-6d4b75cb6d-",
            "namespace": "default",
            "uid": f"0b8d7f6a-0000-4000-8000-{number:012}",
            "resourceVersion": str(100_000 + number),
            "creationTimestamp": TIME,
            "labels": {"app": "app", "pod-template-hash": "6d4b75cb6d", "team": "one"},
            "annotations": {"example.com/checksum": "f" * 64},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "app-6d4b75cb6d",
                    "uid": "u",
                    "controller": True,
                }
            ],
            "managedFields": [
                {"manager": who, "operation": "Update", "apiVersion": "v1", "time": TIME, "fieldsV1": fields}
                for who in ("kube-controller-manager", "kubelet")
            ],
        },
        "spec": {
            "volumes": [
                {"name": "config", "configMap": {"name": "app", "defaultMode": 420}},
                {
                    "name": "token",
                    "projected": {
                        "sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}],
                        "defaultMode": 420,
                    },
                },
            ],
            "containers": [{"name": name, **container} for name in ("app", "proxy")],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "nodeName": "node-1",
            "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
                for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": TIME}
                for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "hostIP": "10.0.0.1",
            "podIP": "10.88.0.7",
            "podIPs": [{"ip": "10.88.0.7"}],
            "startTime": TIME,
            "containerStatuses": [
                {
                    "name": name,
                    "state": {"running": {"startedAt": TIME}},
                    "ready": True,
                    "restartCount": 0,
                    "image": "registry.example.com/team/app:1.2.3",
                    "imageID": "registry.example.com/team/app@sha256:" + "a" * 64,
                    "containerID": "containerd://" + "b" * 64,
                    "started": True,
                }
                for name in ("app", "proxy")
            ],
            "qosClass": "Burstable",
        },
    }


def compile_protos(api: Path, apimachinery: Path, target: Path) -> Any:
    """Generate the module of core/v1 from the release's own files."""
    source = target / "source"
    (source / "k8s.io").mkdir(parents=True)
    (source / "k8s.io/api").symlink_to(api)
    (source / "k8s.io/apimachinery").symlink_to(apimachinery)
    files = [
        "k8s.io/api/core/v1",
        *(
            f"k8s.io/apimachinery/pkg/{each}"
            for each in ("apis/meta/v1", "runtime", "runtime/schema", "api/resource", "util/intstr")
        ),
    ]
    paths = [f"{each}/generated.proto" for each in files]
    well_known = resources.files("grpc_tools") / "_proto"
    if protoc.main(["protoc", f"-I{source}", f"-I{well_known}", f"--python_out={target}", *paths]):
        sys.exit("the files could not be compiled")
    for each in ("k8s.io", *files):
        for part in (Path(each), *Path(each).parents):
            (target / part.as_posix().replace(".", "/")).mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(target))
    return importlib.import_module("k8s.io.api.core.v1.generated_pb2")


def fill(message: Any, data: Mapping[str, Any]) -> None:
    """Write what JSON has into a message."""
    for name, value in data.items():
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            [inline] = [each.name for each in inlined(message.DESCRIPTOR) if name in each.message_type.fields_by_name]
            fill(getattr(message, inline), {name: value})
            continue
        kind = field.message_type
        if kind is None:
            getattr(message, name).extend(value) if isinstance(value, list) else setattr(message, name, value)
        elif kind.GetOptions().map_entry:
            for key, each in value.items():
                if kind.fields_by_name["value"].message_type is None:
                    getattr(message, name)[key] = each
                else:
                    getattr(message, name)[key].string = each
        elif isinstance(value, list):
            for each in value:
                fill(getattr(message, name).add(), each)
        else:
            fill_one(getattr(message, name), kind.full_name, value)


def inlined(descriptor: Any) -> list[Any]:
    """The fields that Go embeds: JSON has what they hold one level higher."""
    return [each for each in descriptor.fields if each.name in ("volumeSource", "handler", "localObjectReference")]


def fill_one(message: Any, kind: str, value: Any) -> None:
    if kind == f"{META}.Time":
        message.seconds = int(datetime.fromisoformat(value).timestamp())
    elif kind == f"{META}.FieldsV1":
        message.Raw = msgspec.json.encode(value)
    elif kind == QUANTITY:
        message.string = value
    elif kind == INT_OR_STRING:
        message.type, message.intVal = 0, value
    else:
        message.SetInParent()
        fill(message, value)


Convert = Callable[[Any], Any]


def build_converter(struct: type[msgspec.Struct], descriptor: Any, known: dict[Any, Convert]) -> Convert:
    """Prepare the way from a message to a struct: only the fields that both have, only those that are set."""

    def convert(message: Any) -> Any:
        return struct(**collect(message))

    if (struct, descriptor.full_name) in known:
        return known[struct, descriptor.full_name]
    known[struct, descriptor.full_name] = convert
    collect = build_collector(struct, descriptor, known)
    return convert


def build_collector(struct: type[msgspec.Struct], descriptor: Any, known: dict[Any, Convert]) -> Convert:
    """Prepare the way from a message to the arguments of a struct."""
    table: dict[int, tuple[str, Convert]] = {}
    for each in msgspec.structs.fields(struct):
        field = descriptor.fields_by_name.get(each.encode_name)
        if field is not None:
            table[field.number] = each.name, value_converter(each.type, field, known)
    for field in inlined(descriptor):
        table[field.number] = "", build_collector(struct, field.message_type, known)

    def collect(message: Any) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for field, value in message.ListFields():
            step = table.get(field.number)
            if step is None:
                continue
            name, convert = step
            if name:
                given[name] = convert(value)
            else:
                given |= convert(value)
        return given

    return collect


def value_converter(kind: Any, field: Any, known: dict[Any, Convert]) -> Convert:
    message = field.message_type
    if message is None:
        return tuple if field.is_repeated else (lambda value: value)
    if message.GetOptions().map_entry:
        if message.fields_by_name["value"].message_type is None:
            return dict
        return lambda value: {key: Quantity.parse(each.string) for key, each in value.items()}
    simple: dict[str, Convert] = {
        f"{META}.Time": lambda value: Time.fromtimestamp(value.seconds, UTC),
        f"{META}.FieldsV1": lambda value: msgspec.Raw(value.Raw),
        QUANTITY: lambda value: Quantity.parse(value.string),
        INT_OR_STRING: lambda value: value.strVal if value.type else value.intVal,
    }
    if message.full_name in simple:
        one = simple[message.full_name]
    else:
        struct = find_struct(kind)
        if struct is None:
            return lambda value: value
        one = build_converter(struct, message, known)
    return (lambda value: tuple(map(one, value))) if field.is_repeated else one


def find_struct(kind: Any) -> type[msgspec.Struct] | None:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next(filter(None, map(find_struct, typing.get_args(kind))), None)


def best_of(action: Callable[[], object], *, rounds: int = 30) -> float:
    """The shortest of several rounds: others use the machine too."""
    return min(timeit.repeat(action, number=1, repeat=rounds))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--api", type=Path, required=True)
    parser.add_argument("--apimachinery", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        core = compile_protos(options.api.resolve(), options.apimachinery.resolve(), Path(name))
        pods = [build_pod(number) for number in range(PODS)]
        message = core.PodList()
        fill(message, {"items": pods})
        list_json = msgspec.json.encode({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods})
        one_json = msgspec.json.encode({"kind": "Pod", "apiVersion": "v1", **pods[0]})
        list_bytes, one_bytes = message.SerializeToString(), message.items[0].SerializeToString()
        known: dict[Any, Convert] = {}
        to_list = build_converter(PodList, core.PodList.DESCRIPTOR, known)
        to_pod = build_converter(Pod, core.Pod.DESCRIPTOR, known)
        assert to_pod(core.Pod.FromString(one_bytes)).spec == decode(Pod, one_json).spec
        for what, size, action in (
            (f"list of {PODS} pods, JSON to structs", len(list_json), lambda: decode(PodList, list_json)),
            (
                f"list of {PODS} pods, protobuf to messages",
                len(list_bytes),
                lambda: core.PodList.FromString(list_bytes),
            ),
            (
                f"list of {PODS} pods, protobuf to structs",
                len(list_bytes),
                lambda: to_list(core.PodList.FromString(list_bytes)),
            ),
            ("one watch event, JSON to a struct", len(one_json), lambda: decode(Pod, one_json)),
            ("one watch event, protobuf to a message", len(one_bytes), lambda: core.Pod.FromString(one_bytes)),
            ("one watch event, protobuf to a struct", len(one_bytes), lambda: to_pod(core.Pod.FromString(one_bytes))),
        ):
            print(f"{what}: {best_of(action) * 1e6:.0f} us of {size} bytes")


if __name__ == "__main__":
    main()
