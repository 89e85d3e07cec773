"""A container's environment: values in order, references to the pod's own fields, and `$(NAME)` expansion."""

import re

from klet.api.container import Container, EnvVar, EphemeralContainer
from klet.api.pod import Pod
from klet.model.expansion import expand
from klet.runtime.errors import CREATE_CONFIG_ERROR, StartError

_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip
_SUBSCRIPT = re.compile(r"^metadata\.(labels|annotations)\['(.*)'\]$")


def build_environment(
    pod: Pod, container: Container | EphemeralContainer, *, pod_ips: tuple[str, ...], node_ips: tuple[str, ...]
) -> dict[str, str]:
    """Evaluate `env` in order; later values may refer to earlier ones."""
    if container.env_from:
        message = f"container {container.name}: envFrom needs an API server, and this node has none"
        raise StartError(CREATE_CONFIG_ERROR, message)
    result: dict[str, str] = {}
    for variable in container.env:
        if variable.value:
            result[variable.name] = expand(variable.value, result)
        elif variable.value_from is not None:
            result[variable.name] = _referenced(pod, variable, pod_ips, node_ips)
        else:
            result[variable.name] = ""
    return result


def _referenced(pod: Pod, variable: EnvVar, pod_ips: tuple[str, ...], node_ips: tuple[str, ...]) -> str:
    source = variable.value_from
    if source is None or source.field_ref is None:
        message = f"environment variable {variable.name}: its valueFrom needs a part of klet that is not built yet"
        raise StartError(CREATE_CONFIG_ERROR, message)
    if source.field_ref.api_version not in {"", "v1"}:
        raise StartError(CREATE_CONFIG_ERROR, f"unsupported pod version: {source.field_ref.api_version}")
    return field_value(pod, source.field_ref.field_path, pod_ips=pod_ips, node_ips=node_ips)


def field_value(pod: Pod, path: str, *, pod_ips: tuple[str, ...], node_ips: tuple[str, ...]) -> str:
    """The text of one of the pod's own fields (the downward API)."""
    meta = pod.metadata
    if match := _SUBSCRIPT.match(path):
        return (meta.labels if match[1] == "labels" else meta.annotations).get(match[2], "")
    pod_ips = one_per_family(pod_ips, node_ips)
    simple = {
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace,
        "metadata.uid": meta.uid,
        "spec.nodeName": pod.spec.node_name,
        "spec.host": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.hostIP": next(iter(node_ips), ""),
        "status.hostIPs": ",".join(node_ips),
        "status.podIP": next(iter(pod_ips), ""),
        "status.podIPs": ",".join(pod_ips),
    }
    if path in simple:
        return simple[path]
    if path in {"metadata.labels", "metadata.annotations"}:
        values = meta.labels if path.endswith("labels") else meta.annotations
        return "\n".join(f"{key}={_quoted(values[key])}" for key in sorted(values))
    raise StartError(CREATE_CONFIG_ERROR, f"unsupported fieldPath: {path}")


def one_per_family(pod_ips: tuple[str, ...], node_ips: tuple[str, ...]) -> tuple[str, ...]:
    """The first address of each family, that of the node's first address in front."""
    first: dict[bool, str] = {}
    for ip in pod_ips:
        first.setdefault(":" in ip, ip)
    ipv6_leads = bool(node_ips) and ":" in node_ips[0]
    return tuple(ip for family, ip in sorted(first.items(), reverse=ipv6_leads)) if node_ips else tuple(first.values())


def _quoted(text: str) -> str:
    """Quote a text as Go does (`%q`)."""
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    if character.isprintable():
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
