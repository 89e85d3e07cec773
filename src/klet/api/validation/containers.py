"""Rules for regular, init and ephemeral containers."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from klet.api.container import Container, ContainerPort, ContainerResizePolicy, EphemeralContainer, ResourceRequirements
from klet.api.pod import PodSpec
from klet.api.pod_resources import is_sidecar
from klet.api.validation import formats
from klet.api.validation.env import validate_env, validate_env_from
from klet.api.validation.errors import (
    FieldErrors,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_found,
    not_supported,
    required,
    too_many,
)
from klet.api.validation.fieldpath import FieldPath
from klet.api.validation.handlers import validate_lifecycle, validate_liveness_probe, validate_readiness_probe
from klet.api.validation.mounts import validate_volume_devices, validate_volume_mounts
from klet.api.validation.options import PodValidationOptions
from klet.api.validation.resources import validate_container_resources
from klet.api.validation.security import validate_security_context
from klet.api.validation.volumes import validate_pull_policy
from klet.api.volume import Volume

_MESSAGE_POLICIES: Final = ("File", "FallbackToLogsOnError")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_RESIZE_RESOURCES: Final = ("cpu", "memory")
_RESIZE_POLICIES: Final = ("NotRequired", "RestartContainer")
_RESTART_POLICIES: Final = ("Always", "Never", "OnFailure")
_RULE_ACTIONS: Final = ("Restart",)
_RESTART_ALL: Final = "RestartAllContainers"
_POLICY_MISSING: Final = "must specify restartPolicy when restart rules are used"
_RULE_OPERATORS: Final = ("In", "NotIn")
_RULES_LIMIT: Final = 20
_EXIT_CODES_LIMIT: Final = 255
_PLAIN_INIT: Final = "may not be set for init containers without restartPolicy=Always"
_EPHEMERAL: Final = "cannot be set for an Ephemeral Container"
_NO_RESOURCES: Final = ResourceRequirements()


class ContainerScope(Struct, frozen=True):
    """What the rules for a container need to know of its pod."""

    spec: PodSpec
    volumes: Mapping[str, Volume]
    options: PodValidationOptions
    claim_names: frozenset[str]
    host_users: bool

    @property
    def os_name(self) -> str | None:
        return None if self.spec.os is None else self.spec.os.name


def validate_containers(scope: ContainerScope, path: FieldPath) -> FieldErrors:
    if not scope.spec.containers:
        yield required(path)
        return
    names: set[str] = set()
    for position, container in enumerate(scope.spec.containers):
        here = path.at(position)
        yield from _common(container, scope, here)
        if container.name in names:
            yield duplicate(here.child("name"), container.name)
        names.add(container.name)
        yield from _running(container, scope, here)
        if scope.options.container_restart_rules:
            yield from _restart_policy(container, scope.options, here)
        elif container.restart_policy is not None:
            yield forbidden(here.child("restartPolicy"), "may not be set for non-init containers")
    yield from _host_port_conflicts(scope.spec.containers, path)


def validate_init_containers(scope: ContainerScope, path: FieldPath) -> FieldErrors:
    names = {container.name for container in scope.spec.containers}
    for position, container in enumerate(scope.spec.init_containers):
        here = path.at(position)
        yield from _common(container, scope, here)
        yield from _init_restart_policy(container, scope.options, here)
        if container.name in names:
            yield duplicate(here.child("name"), container.name)
        elif container.name:
            names.add(container.name)
        # Init containers run one by one, so each is only checked against itself (and printed as the first).
        yield from _host_port_conflicts((container,), path)
        if is_sidecar(container):
            yield from _running(container, scope, here)
        else:
            yield from _unset(container, _PLAIN_INIT, here)


def validate_ephemeral_containers(scope: ContainerScope, path: FieldPath) -> FieldErrors:
    others = {container.name for container in (*scope.spec.containers, *scope.spec.init_containers)}
    names = set(others)
    for position, container in enumerate(scope.spec.ephemeral_containers):
        here = path.at(position)
        yield from _common(container, scope, here)
        yield from validate_image_blanks(container, here)
        if container.name in names:
            yield duplicate(here.child("name"), container.name)
        names.add(container.name)
        if container.target_container_name and container.target_container_name not in others:
            yield not_found(here.child("targetContainerName"), container.target_container_name)
        yield from _ephemeral_fields(container, here)


def validate_image_blanks(container: Container | EphemeralContainer, path: FieldPath) -> FieldErrors:
    if container.image != container.image.strip():
        yield invalid(path.child("image"), container.image, "must not have leading or trailing whitespace")


def validate_host_network_ports(scope: ContainerScope, path: FieldPath) -> FieldErrors:
    if not scope.spec.host_network:
        return
    for position, container in enumerate(scope.spec.containers):
        for port_position, port in enumerate(container.ports):
            if (scope.options.resource_is_pod or port.host_port) and port.host_port != port.container_port:
                here = path.child("containers").at(position).child("ports").at(port_position).child("hostPort")
                yield invalid(here, port.host_port, "must match `containerPort` when `hostNetwork` is true")


def _common(container: Container | EphemeralContainer, scope: ContainerScope, path: FieldPath) -> FieldErrors:
    if not container.name:
        yield required(path.child("name"))
    elif messages := formats.dns_label(container.name):
        yield from invalid_each(path.child("name"), container.name, messages)
    if not container.image:
        yield required(path.child("image"))
    if not container.termination_message_policy:
        yield required(path.child("terminationMessagePolicy"))
    elif container.termination_message_policy not in _MESSAGE_POLICIES:
        policy = path.child("terminationMessagePolicy")
        yield not_supported(policy, container.termination_message_policy, _MESSAGE_POLICIES)
    yield from _parts(container, scope, path)
    yield from validate_pull_policy(container.image_pull_policy, path.child("imagePullPolicy"))
    yield from validate_container_resources(container.resources, scope.claim_names, path.child("resources"))
    if container.resize_policy:
        yield from _resize_policies(container.resize_policy, scope.spec.restart_policy, path.child("resizePolicy"))
    if (context := container.security_context) is not None:
        here = path.child("securityContext")
        yield from validate_security_context(context, here, scope.options, host_users=scope.host_users)


def _parts(container: Container | EphemeralContainer, scope: ContainerScope, path: FieldPath) -> FieldErrors:
    """Check the lists of a container; most are empty, and then not even their path is made."""
    if container.ports:
        yield from _ports(container.ports, path.child("ports"))
    if container.env:
        yield from validate_env(container.env, scope.volumes, path.child("env"))
    if container.env_from:
        yield from validate_env_from(container.env_from, path.child("envFrom"))
    if container.volume_mounts:
        yield from validate_volume_mounts(container, scope.volumes, path.child("volumeMounts"))
    if container.volume_devices:
        yield from validate_volume_devices(container, scope.volumes, path.child("volumeDevices"))


def _running(container: Container, scope: ContainerScope, path: FieldPath) -> FieldErrors:
    """Check hooks and probes, which only containers have that keep running."""
    if container.lifecycle is not None:
        grace_period = scope.spec.termination_grace_period_seconds
        yield from validate_lifecycle(container.lifecycle, grace_period, scope.os_name, path.child("lifecycle"))
    if container.liveness_probe is not None:
        yield from validate_liveness_probe(container.liveness_probe, path.child("livenessProbe"))
    if container.readiness_probe is not None:
        yield from validate_readiness_probe(container.readiness_probe, path.child("readinessProbe"))
    if container.startup_probe is not None:
        yield from validate_liveness_probe(container.startup_probe, path.child("startupProbe"))


def _unset(container: Container, message: str, path: FieldPath) -> FieldErrors:
    for wire_name, value in (
        ("lifecycle", container.lifecycle),
        ("livenessProbe", container.liveness_probe),
        ("readinessProbe", container.readiness_probe),
        ("startupProbe", container.startup_probe),
    ):
        if value is not None:
            yield forbidden(path.child(wire_name), message)


def _ephemeral_fields(container: EphemeralContainer, path: FieldPath) -> FieldErrors:
    for wire_name, is_set in (
        ("ports", bool(container.ports)),
        ("resources", container.resources != _NO_RESOURCES),
        ("resizePolicy", bool(container.resize_policy)),
        ("restartPolicy", container.restart_policy is not None),
        ("restartPolicyRules", bool(container.restart_policy_rules)),
        ("livenessProbe", container.liveness_probe is not None),
        ("readinessProbe", container.readiness_probe is not None),
        ("startupProbe", container.startup_probe is not None),
        ("lifecycle", container.lifecycle is not None),
    ):
        if is_set:
            yield forbidden(path.child(wire_name), _EPHEMERAL)
    for position, mount in enumerate(container.volume_mounts):
        here = path.child("volumeMounts").at(position)
        if mount.sub_path:
            yield forbidden(here.child("subPath"), _EPHEMERAL)
        if mount.sub_path_expr:
            yield forbidden(here.child("subPathExpr"), _EPHEMERAL)


def _ports(ports: tuple[ContainerPort, ...], path: FieldPath) -> FieldErrors:
    names: set[str] = set()
    for position, port in enumerate(ports):
        here = path.at(position)
        if port.name:
            if messages := formats.port_name(port.name):
                yield from invalid_each(here.child("name"), port.name, messages)
            elif port.name in names:
                yield duplicate(here.child("name"), port.name)
            names.add(port.name)
        if port.container_port == 0:
            yield required(here.child("containerPort"))
        else:
            messages = formats.port_number(port.container_port)
            yield from invalid_each(here.child("containerPort"), port.container_port, messages)
        if port.host_port:
            yield from invalid_each(here.child("hostPort"), port.host_port, formats.port_number(port.host_port))
        if not port.protocol:
            yield required(here.child("protocol"))
        elif port.protocol not in _PROTOCOLS:
            yield not_supported(here.child("protocol"), port.protocol, _PROTOCOLS)


def _host_port_conflicts(containers: tuple[Container, ...], path: FieldPath) -> FieldErrors:
    taken: set[str] = set()
    for position, container in enumerate(containers):
        for port_position, port in enumerate(container.ports):
            if not port.host_port:
                continue
            key = f"{port.protocol}/{port.host_ip}/{port.host_port}"
            if key in taken:
                yield duplicate(path.at(position).child("ports").at(port_position).child("hostPort"), key)
            taken.add(key)


def _resize_policies(policies: tuple[ContainerResizePolicy, ...], pod_policy: str, path: FieldPath) -> FieldErrors:
    seen: set[str] = set()
    for position, policy in enumerate(policies):
        if policy.resource_name in seen:
            yield duplicate(path.at(position), policy.resource_name)
        seen.add(policy.resource_name)
        for value, supported in (
            (policy.resource_name, _RESIZE_RESOURCES),
            (policy.restart_policy, _RESIZE_POLICIES),
        ):
            if not value:
                yield required(path)
            elif value not in supported:
                yield not_supported(path, value, supported)
        if pod_policy == "Never" and policy.restart_policy != "NotRequired":
            message = "must be 'NotRequired' when `restartPolicy` is 'Never'"
            yield invalid(path, policy.restart_policy, message)


def _init_restart_policy(container: Container, options: PodValidationOptions, path: FieldPath) -> FieldErrors:
    rules = container.restart_policy_rules
    if container.restart_policy is None:
        if rules:
            yield required(path.child("restartPolicy"), _POLICY_MISSING)
    elif not options.container_restart_rules:
        if not is_sidecar(container):
            yield not_supported(path.child("restartPolicy"), container.restart_policy, ("Always",))
    elif not is_sidecar(container) or options.restart_all_containers:
        yield from _restart_policy(container, options, path)
    elif rules:
        message = "restartPolicyRules are not allowed for init containers with restart policy Always"
        yield forbidden(path.child("restartPolicyRules"), message)


def _restart_policy(container: Container, options: PodValidationOptions, path: FieldPath) -> FieldErrors:
    if container.restart_policy is None and not container.restart_policy_rules:
        return
    rules, here = container.restart_policy_rules, path.child("restartPolicyRules")
    if container.restart_policy is None:
        yield required(path.child("restartPolicy"), _POLICY_MISSING)
    elif container.restart_policy not in _RESTART_POLICIES:
        yield not_supported(path.child("restartPolicy"), container.restart_policy, _RESTART_POLICIES)
    if len(rules) > _RULES_LIMIT:
        yield too_many(here, len(rules), _RULES_LIMIT)
    for position, rule in enumerate(rules):
        rule_path = here.at(position)
        # As upstream, the text names RestartAllContainers in no case.
        if rule.action not in _RULE_ACTIONS and not (options.restart_all_containers and rule.action == _RESTART_ALL):
            yield not_supported(rule_path.child("action"), rule.action, _RULE_ACTIONS)
        codes = rule.exit_codes
        if codes is None:
            yield required(rule_path.child("exitCodes"), "must be specified")
            continue
        if codes.operator not in _RULE_OPERATORS:
            yield not_supported(rule_path.child("exitCodes", "operator"), codes.operator, _RULE_OPERATORS)
        if len(codes.values) > _EXIT_CODES_LIMIT:
            yield too_many(rule_path.child("exitCodes", "values"), len(codes.values), _EXIT_CODES_LIMIT)
