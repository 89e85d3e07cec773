"""Containers of a pod spec: environment, ports, mounts, resources, restart rules (core/v1)."""

from collections.abc import Mapping

from msgspec import field

from klet.api.base import ApiObject, Int32, required
from klet.api.handlers import Lifecycle, Probe
from klet.api.quantity import Quantity
from klet.api.security import SecurityContext


class ContainerPort(ApiObject, frozen=True, kw_only=True):
    name: str = ""
    host_port: Int32 = 0
    container_port: Int32 = required(int)
    protocol: str = ""
    host_ip: str = field(name="hostIP", default="")


class ObjectFieldSelector(ApiObject, frozen=True, kw_only=True):
    api_version: str = ""
    field_path: str = required(str)


class ResourceFieldSelector(ApiObject, frozen=True, kw_only=True):
    container_name: str = ""
    resource: str = required(str)
    divisor: Quantity | None = None


class ConfigMapKeySelector(ApiObject, frozen=True, kw_only=True):
    key: str = required(str)
    optional: bool | None = None
    name: str = ""


class SecretKeySelector(ApiObject, frozen=True, kw_only=True):
    key: str = required(str)
    optional: bool | None = None
    name: str = ""


class FileKeySelector(ApiObject, frozen=True, kw_only=True):
    volume_name: str = required(str)
    path: str = required(str)
    key: str = required(str)
    optional: bool | None = None


class EnvVarSource(ApiObject, frozen=True, kw_only=True):
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: ConfigMapKeySelector | None = None
    secret_key_ref: SecretKeySelector | None = None
    file_key_ref: FileKeySelector | None = None


class EnvVar(ApiObject, frozen=True, kw_only=True):
    """One environment variable: a value or where to find it."""

    name: str = required(str)
    value: str = ""
    value_from: EnvVarSource | None = None


class ConfigMapEnvSource(ApiObject, frozen=True, kw_only=True):
    optional: bool | None = None
    name: str = ""


class SecretEnvSource(ApiObject, frozen=True, kw_only=True):
    optional: bool | None = None
    name: str = ""


class EnvFromSource(ApiObject, frozen=True, kw_only=True):
    prefix: str = ""
    config_map_ref: ConfigMapEnvSource | None = None
    secret_ref: SecretEnvSource | None = None


class ResourceClaim(ApiObject, frozen=True, kw_only=True):
    """A claim of the pod that this container uses."""

    name: str = required(str)
    request: str = ""


class ResourceRequirements(ApiObject, frozen=True, kw_only=True):
    """What a container gets at least and at most."""

    limits: Mapping[str, Quantity] = {}
    requests: Mapping[str, Quantity] = {}
    claims: tuple[ResourceClaim, ...] = ()


class ContainerResizePolicy(ApiObject, frozen=True, kw_only=True):
    resource_name: str = required(str)
    restart_policy: str = required(str)


class ContainerRestartRuleOnExitCodes(ApiObject, frozen=True, kw_only=True):
    operator: str = required(str)
    values: tuple[Int32, ...] = ()


class ContainerRestartRule(ApiObject, frozen=True, kw_only=True):
    action: str = required(str)
    exit_codes: ContainerRestartRuleOnExitCodes | None = None


class VolumeMount(ApiObject, frozen=True, kw_only=True):
    """Where a volume appears in the container."""

    name: str = required(str)
    read_only: bool = False
    recursive_read_only: str | None = None
    mount_path: str = required(str)
    sub_path: str = ""
    mount_propagation: str | None = None
    sub_path_expr: str = ""


class VolumeDevice(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)
    device_path: str = required(str)


class Container(ApiObject, frozen=True, kw_only=True):
    """One container of a pod, as wanted."""

    name: str = required(str)
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    ports: tuple[ContainerPort, ...] = ()
    env_from: tuple[EnvFromSource, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    resize_policy: tuple[ContainerResizePolicy, ...] = ()
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    volume_devices: tuple[VolumeDevice, ...] = ()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    termination_message_path: str = ""
    termination_message_policy: str = ""
    image_pull_policy: str = ""
    security_context: SecurityContext | None = None
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False


class EphemeralContainer(ApiObject, frozen=True, kw_only=True):
    """A container added to a running pod for debugging."""

    target_container_name: str = ""
    args: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvFromSource, ...] = ()
    image: str = ""
    image_pull_policy: str = ""
    lifecycle: Lifecycle | None = None
    liveness_probe: Probe | None = None
    name: str = required(str)
    ports: tuple[ContainerPort, ...] = ()
    readiness_probe: Probe | None = None
    resize_policy: tuple[ContainerResizePolicy, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()
    security_context: SecurityContext | None = None
    startup_probe: Probe | None = None
    stdin: bool = False
    stdin_once: bool = False
    termination_message_path: str = ""
    termination_message_policy: str = ""
    tty: bool = False
    volume_devices: tuple[VolumeDevice, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    working_dir: str = ""
