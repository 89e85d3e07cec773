"""A container's environment: values in order, references, and `$(NAME)` expansion (makeEnvironmentVariables). Pure.

What has to be read first comes in as inputs. A failed read is an input too: it counts only where it is referred to. The
variables by which containers find services are those of upstream's `envvars.FromServices`.
"""

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct, field

from klet.api.container import (
    ConfigMapKeySelector,
    Container,
    EnvFromSource,
    EnvVarSource,
    EphemeralContainer,
    FileKeySelector,
    SecretKeySelector,
)
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.api.service import Service, ServicePort
from klet.errors import KletError
from klet.model.allocation import PodAllocation
from klet.model.expansion import MOST_EXPANDED, ExpansionError, expand
from klet.model.foreign_text import LONGEST_WORD, shorten
from klet.model.objects import ObjectMissing
from klet.model.pods import is_static
from klet.runtime.environment.downward import field_value, resource_value
from klet.runtime.environment.env_files import EnvFile, EnvFileError
from klet.runtime.errors import CREATE_CONFIG_ERROR, StartError

T = TypeVar("T")
MASTER_NAMESPACE = "default"
MASTER_NAME = "kubernetes"


class EnvironmentInputs(Struct, frozen=True, kw_only=True):
    """What an environment is made of besides the pod. Objects are those of the pod's namespace, by name."""

    allocation: PodAllocation
    """What the pod has been given."""
    pod_ips: tuple[str, ...] = ()
    """At most one of each family, the node's primary family first."""
    node_ips: tuple[str, ...] = ()
    config_maps: Mapping[str, Mapping[str, str] | KletError] = field(default_factory=dict)
    secrets: Mapping[str, Mapping[str, bytes] | KletError] = field(default_factory=dict)
    files: Mapping[tuple[str, str], EnvFile | KletError] = field(default_factory=dict)
    """By volume and path; of a volume that does not exist there is no entry."""
    services: Sequence[Service] | None = ()
    """None as long as they have not been read."""
    allocatable: Mapping[str, Quantity] | None = None
    """What the node has for pods; None if unknown."""
    devices: Mapping[str, str] = field(default_factory=dict)
    """What the device manager wants containers to see."""


def build_environment(pod: Pod, container: Container | EphemeralContainer, inputs: EnvironmentInputs) -> dict[str, str]:
    """Evaluate `envFrom`, then `env` in order: later values may refer to earlier ones and to services."""
    from_services = _service_variables(pod, inputs)
    own: dict[str, str] = {}
    for source in container.env_from:
        own.update(_all_of(source, inputs))
    visible = ChainMap(own, from_services)
    left = MOST_EXPANDED
    for variable in container.env:
        if variable.value:
            try:
                own[variable.name] = expand(variable.value, visible, room=left)
            except ExpansionError as error:
                raise _error(f"environment variable {shorten(variable.name, LONGEST_WORD)}: {error}") from error
            left -= len(own[variable.name])
        elif variable.value_from is None:
            own[variable.name] = ""
        elif (value := _referenced(pod, container, variable.value_from, inputs)) is not None:
            own[variable.name] = value
    rest = {name: value for name, value in from_services.items() if name not in own}
    return {**inputs.devices, **own, **rest}


def _service_variables(pod: Pod, inputs: EnvironmentInputs) -> dict[str, str]:
    links = pod.spec.enable_service_links
    if links is None:
        raise _error("nil pod.spec.enableServiceLinks encountered, cannot construct envvars")
    if inputs.services is None and not is_static(pod):
        raise _error("services have not yet been read at least once, cannot construct envvars")
    return build_service_environment(inputs.services or (), namespace=pod.metadata.namespace, with_links=links)


def _all_of(source: EnvFromSource, inputs: EnvironmentInputs) -> dict[str, str]:
    data: dict[str, str] = {}
    if source.config_map_ref is not None:
        found = _look_up(inputs.config_maps, source.config_map_ref.name, optional=source.config_map_ref.optional)
        data.update(found or {})
    elif source.secret_ref is not None:
        secret = _look_up(inputs.secrets, source.secret_ref.name, optional=source.secret_ref.optional)
        data.update({key: _text(value) for key, value in (secret or {}).items()})
    return {source.prefix + key: value for key, value in data.items()}


def _referenced(
    pod: Pod, container: Container | EphemeralContainer, source: EnvVarSource, inputs: EnvironmentInputs
) -> str | None:
    """Return the value, or None for an optional one that is not there."""
    if source.field_ref is not None:
        if source.field_ref.api_version not in {"", "v1"}:
            raise _error(f"unsupported pod version: {source.field_ref.api_version}")
        return field_value(pod, source.field_ref.field_path, pod_ips=inputs.pod_ips, node_ips=inputs.node_ips)
    if source.resource_field_ref is not None:
        wanted, allocatable = source.resource_field_ref, inputs.allocatable
        return resource_value(inputs.allocation, container.name, wanted, allocatable=allocatable)
    if (from_map := source.config_map_key_ref) is not None:
        data = _look_up(inputs.config_maps, from_map.name, optional=from_map.optional)
        return _pick(pod, "ConfigMap", data, from_map)
    if (from_secret := source.secret_key_ref) is not None:
        secret = _look_up(inputs.secrets, from_secret.name, optional=from_secret.optional)
        value = _pick(pod, "Secret", secret, from_secret)
        return None if value is None else _text(value)
    if source.file_key_ref is not None:
        return _from_file(source.file_key_ref, inputs)
    return ""


def _pick(
    pod: Pod, kind: str, data: Mapping[str, T] | None, wanted: ConfigMapKeySelector | SecretKeySelector
) -> T | None:
    if data is not None and wanted.key in data:
        return data[wanted.key]
    if wanted.optional:
        return None
    raise _error(f"couldn't find key {wanted.key} in {kind} {pod.metadata.namespace}/{wanted.name}")


def _from_file(wanted: FileKeySelector, inputs: EnvironmentInputs) -> str | None:
    content = inputs.files.get((wanted.volume_name, wanted.path))
    if content is None:
        raise _error(f'cannot find the volume "{wanted.volume_name}" referenced by FileKeyRef')
    if isinstance(content, KletError):
        raise _error("couldn't parse env file") from content
    try:
        value = content.find(wanted.key)
    except EnvFileError as error:
        raise _error("couldn't parse env file") from error
    if value:
        return value
    if wanted.optional:
        return None
    raise _error(f'environment variable key "{wanted.key}" not found in file "{wanted.path}"')


def _look_up(objects: Mapping[str, T | KletError], name: str, *, optional: bool | None) -> T | None:
    found = objects[name]
    if isinstance(found, ObjectMissing) and optional:
        return None
    if isinstance(found, KletError):
        raise _error(str(found)) from found
    return found


def _text(value: bytes) -> str:
    """Decode a value. Secrets need not be text: what is not keeps its bytes until they are sent."""
    return value.decode(errors="surrogateescape")


def _error(message: str) -> StartError:
    return StartError(CREATE_CONFIG_ERROR, message)


def build_service_environment(services: Iterable[Service], *, namespace: str, with_links: bool) -> dict[str, str]:
    """Return variables of the API server's service, and with links those of every service in the pod's namespace."""
    chosen: dict[str, Service] = {}
    for service in services:
        if not service.spec.cluster_ip or service.spec.cluster_ip == "None":
            continue
        name, home = service.metadata.name, service.metadata.namespace
        if home == namespace and with_links:
            chosen[name] = service
        elif (home, name) == (MASTER_NAMESPACE, MASTER_NAME):
            chosen.setdefault(name, service)
    variables: dict[str, str] = {}
    for service in chosen.values():
        variables.update(_variables(service))
    return variables


def _variables(service: Service) -> dict[str, str]:
    name = _name(service.metadata.name)
    address = service.spec.cluster_ip
    variables = {f"{name}_SERVICE_HOST": address}
    if not service.spec.ports:
        return variables
    first = service.spec.ports[0]
    variables[f"{name}_SERVICE_PORT"] = str(first.port)
    for port in service.spec.ports:
        if port.name:
            variables[f"{name}_SERVICE_PORT_{_name(port.name)}"] = str(port.port)
    variables[f"{name}_PORT"] = _url(address, first)
    for port in service.spec.ports:
        protocol = port.protocol or "TCP"
        prefix = f"{name}_PORT_{port.port}_{protocol.upper()}"
        variables[prefix] = _url(address, port)
        variables[f"{prefix}_PROTO"] = protocol.lower()
        variables[f"{prefix}_PORT"] = str(port.port)
        variables[f"{prefix}_ADDR"] = address
    return variables


def _url(address: str, port: ServicePort) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"{(port.protocol or 'TCP').lower()}://{host}:{port.port}"


def _name(name: str) -> str:
    return name.replace("-", "_").upper()
