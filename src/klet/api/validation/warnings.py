"""Warnings about pods that are valid and yet probably wrong, sent with the answer to a create."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from klet.api.container import Container, ContainerPort, EphemeralContainer
from klet.api.placement import NodeSelectorTerm
from klet.api.pod import Pod, PodSpec
from klet.api.quantity import Quantity
from klet.api.validation import formats
from klet.api.validation.annotations import APP_ARMOR_CONTAINER, SECCOMP_CONTAINER, SECCOMP_POD
from klet.api.validation.fieldpath import METADATA, SPEC, FieldPath
from klet.api.validation.placement import PREFERRED_TERMS, REQUIRED_TERMS
from klet.api.validation.rendering import go_quote, render_go_struct
from klet.api.validation.visiting import containers_with_paths
from klet.api.volume import Volume, VolumeProjection

Warnings = Iterator[str]

_NULL_SELECTOR: Final = "a null labelSelector results in matching no pod"
_USE_SECCOMP_FIELD: Final = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_USE_APP_ARMOR_FIELD: Final = 'deprecated since v1.30; use the "appArmorProfile" field instead'
_OLD_ANNOTATIONS: Final = (
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        'non-functional in v1.16+; use the "priorityClassName" field instead',
    ),
    ("security.alpha.kubernetes.io/sysctls", 'non-functional in v1.11+; use the "sysctls" field instead'),
    ("security.alpha.kubernetes.io/unsafe-sysctls", 'non-functional in v1.11+; use the "sysctls" field instead'),
)
_OLD_NODE_LABELS: Final = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
}
# Attribute, wire name and text of volume sources without a future.
_OLD_VOLUMES: Final = (
    ("photon_persistent_disk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("git_repo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scale_io", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
)


def warnings_for_pod_create(pod: Pod) -> tuple[str, ...]:
    """Return all warnings for a new pod, with its defaults applied."""
    return tuple(_warnings(pod))


def _warnings(pod: Pod) -> Warnings:
    spec, annotations = pod.spec, pod.metadata.annotations
    if pod.metadata.name and (messages := formats.dns_label(pod.metadata.name)):
        yield (
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; "
            f"a DNS label is recommended: [{' '.join(messages)}]"
        )
    yield from _node_labels(spec)
    yield from _spread(spec)
    for key, message in _OLD_ANNOTATIONS:
        if key in annotations:
            yield f"{METADATA.child('annotations').key(key)}: {message}"
    yield from _volumes(spec)
    yield from _duplicates(spec)
    yield from _fractions(spec.overhead, SPEC.child("overhead"))
    if SECCOMP_POD in annotations and not (spec.security_context and spec.security_context.seccomp_profile):
        yield f"{METADATA.child('annotations').key(SECCOMP_POD)}: {_USE_SECCOMP_FIELD}"
    for container, path in containers_with_paths(spec, SPEC):
        yield from _container(container, spec, annotations, path)
    yield from _ports(spec)
    if spec.termination_grace_period_seconds is not None and spec.termination_grace_period_seconds < 0:
        path = SPEC.child("terminationGracePeriodSeconds")
        yield f"{path}: must be >= 0; negative values are invalid and will be treated as 1"
    yield from _affinity_selectors(spec)


def _node_labels(spec: PodSpec) -> Warnings:
    for key in spec.node_selector:
        if message := _OLD_NODE_LABELS.get(key):
            yield f"{SPEC.child('nodeSelector').key(key)}: {message}"
    node = spec.affinity.node_affinity if spec.affinity else None
    if node is None:
        return
    path = SPEC.child("affinity", "nodeAffinity")
    if (demanded := node.required_during_scheduling_ignored_during_execution) is not None:
        for position, term in enumerate(demanded.node_selector_terms):
            yield from _node_term(term, path.child(REQUIRED_TERMS, "nodeSelectorTerms").at(position))
    for position, preferred in enumerate(node.preferred_during_scheduling_ignored_during_execution):
        yield from _node_term(preferred.preference, path.child(PREFERRED_TERMS).at(position).child("preference"))


def _node_term(term: NodeSelectorTerm, path: FieldPath) -> Warnings:
    for position, requirement in enumerate(term.match_expressions):
        if message := _OLD_NODE_LABELS.get(requirement.key):
            here = path.child("matchExpressions").at(position).child("key")
            yield f"{here}: {requirement.key} is {message}"


def _spread(spec: PodSpec) -> Warnings:
    for position, constraint in enumerate(spec.topology_spread_constraints):
        path = SPEC.child("topologySpreadConstraints").at(position)
        if message := _OLD_NODE_LABELS.get(constraint.topology_key):
            yield f"{path.child('topologyKey')}: {constraint.topology_key} is {message}"
        if constraint.label_selector is None:
            yield f"{path.child('labelSelector')}: {_NULL_SELECTOR}"


def _volumes(spec: PodSpec) -> Warnings:
    for position, volume in enumerate(spec.volumes):
        path = SPEC.child("volumes").at(position)
        for attribute, wire_name, message in _OLD_VOLUMES:
            if getattr(volume, attribute) is not None:
                yield f"{path.child(wire_name)}: {message}"
        template = volume.ephemeral.volume_claim_template if volume.ephemeral else None
        if template is not None:
            here = path.child("ephemeral", "volumeClaimTemplate", "spec", "resources", "requests")
            yield from _fractions(template.spec.resources.requests, here)
    for volume in spec.volumes:
        yield from overlapping_volume_paths(volume)


def _duplicates(spec: PodSpec) -> Warnings:
    addresses: set[str] = set()
    for position, alias in enumerate(spec.host_aliases):
        if alias.ip in addresses:
            yield f"{SPEC.child('hostAliases').at(position).child('ip')}: duplicate ip {go_quote(alias.ip)}"
        addresses.add(alias.ip)
    names: set[str] = set()
    path = SPEC.child("imagePullSecrets")
    for position, secret in enumerate(spec.image_pull_secrets):
        if secret.name in names:
            yield f"{path.at(position).child('name')}: duplicate name {go_quote(secret.name)}"
        names.add(secret.name)
    for position, secret in enumerate(spec.image_pull_secrets):
        if not secret.name:
            yield f'{path.at(position).child("name")}: invalid empty name ""'


def _fractions(amounts: Mapping[str, Quantity], path: FieldPath) -> Warnings:
    for name in ("memory", "ephemeral-storage", "storage"):
        amount = amounts.get(name)
        if amount is not None and amount.milli_value() % 1000:
            yield f'{path.key(name)}: fractional byte value "{amount}" is invalid, must be an integer'


def _container(
    container: Container | EphemeralContainer, spec: PodSpec, annotations: Mapping[str, str], path: FieldPath
) -> Warnings:
    context = container.security_context
    if not (context and context.seccomp_profile) and (key := SECCOMP_CONTAINER + container.name) in annotations:
        yield f"{METADATA.child('annotations').key(key)}: {_USE_SECCOMP_FIELD}"
    armored = (spec.security_context and spec.security_context.app_armor_profile) or (
        context and context.app_armor_profile
    )
    if not armored and (key := APP_ARMOR_CONTAINER + container.name) in annotations:
        yield f"{METADATA.child('annotations').key(key)}: {_USE_APP_ARMOR_FIELD}"
    yield from _resource_fractions(container, path.child("resources"))
    yield from _hidden_variables(container, path.child("env"))


def _resource_fractions(container: Container | EphemeralContainer, path: FieldPath) -> Warnings:
    limits, requests = container.resources.limits, container.resources.requests
    for name in ("memory", "ephemeral-storage"):
        for wire_name, amounts in (("limits", limits), ("requests", requests)):
            if name in amounts:
                yield from _fractions({name: amounts[name]}, path.child(wire_name))


def _hidden_variables(container: Container | EphemeralContainer, path: FieldPath) -> Warnings:
    names: set[str] = set()
    for position, variable in enumerate(container.env):
        if variable.name in names:
            reference = f"$({variable.name})"
            extends = reference in variable.value and variable.value != reference and variable.value_from is None
            if not extends:
                name = go_quote(variable.name)
                yield (
                    f"{path.at(position)}: hides previous definition of {name}, which may be dropped when using apply"
                )
        names.add(variable.name)


def _ports(spec: PodSpec) -> Warnings:
    by_number: dict[tuple[int, str], list[tuple[FieldPath, ContainerPort]]] = {}
    by_name: dict[str, FieldPath] = {}
    for container, path in containers_with_paths(spec, SPEC):
        for position, port in enumerate(container.ports):
            here = path.child("ports").at(position)
            if port.host_ip and not port.host_port:
                yield f"{here}: hostIP set without hostPort: {render_go_struct(port)}"
            others = by_number.setdefault((port.container_port, port.protocol), [])
            for other_path, other in others:
                yield from _port_clash(here, port, other_path, other)
            others.append((here, port))
            if not port.name:
                continue
            if (first := by_name.setdefault(port.name, here)) is not here:
                yield (
                    f"{here}: duplicate port name {go_quote(port.name)} with {first}, "
                    f"services and probes that select ports by name will use {first}"
                )


def _port_clash(path: FieldPath, port: ContainerPort, other_path: FieldPath, other: ContainerPort) -> Warnings:
    if (port.host_ip, port.host_port) == (other.host_ip, other.host_port):
        yield f"{path}: duplicate port definition with {other_path}"
    elif not port.host_port or not other.host_port:
        yield f"{path}: overlapping port definition with {other_path}"
    elif port.host_port == other.host_port and bool(port.host_ip) != bool(other.host_ip):
        yield f"{path}: dangerously ambiguous port definition with {other_path}"


def _affinity_selectors(spec: PodSpec) -> Warnings:
    if spec.affinity is None:
        return
    for wire_name, affinity in (
        ("podAffinity", spec.affinity.pod_affinity),
        ("podAntiAffinity", spec.affinity.pod_anti_affinity),
    ):
        if affinity is None:
            continue
        path = SPEC.child("affinity", wire_name)
        for position, term in enumerate(affinity.required_during_scheduling_ignored_during_execution):
            if term.label_selector is None:
                yield f"{path.child(REQUIRED_TERMS).at(position).child('labelSelector')}: {_NULL_SELECTOR}"
        for position, weighted in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
            if weighted.pod_affinity_term.label_selector is None:
                here = path.child(PREFERRED_TERMS).at(position).child("podAffinityTerm", "labelSelector")
                yield f"{here}: {_NULL_SELECTOR}"


class _Target(Struct, frozen=True):
    """Where a file goes, and which source of a projected volume wants it there."""

    path: str
    source: str = ""

    def __str__(self) -> str:
        return f"{go_quote(self.path)} ({self.source})" if self.source else go_quote(self.path)


def overlapping_volume_paths(volume: Volume) -> Iterator[str]:
    if (config_map := volume.config_map) is not None:
        targets = [_Target(item.path) for item in config_map.items]
        yield from _warn(volume, f"ConfigMap {go_quote(config_map.name)}", targets)
    if (secret := volume.secret) is not None:
        targets = [_Target(item.path) for item in secret.items]
        yield from _warn(volume, f"Secret {go_quote(secret.secret_name)}", targets)
    if volume.downward_api is not None:
        yield from _warn(volume, "DownwardAPI", [_Target(file.path) for file in volume.downward_api.items])
    if volume.projected is not None:
        for source in volume.projected.sources:
            if source == VolumeProjection():
                yield f"volume {go_quote(volume.name)} (Projected) has no sources provided"
        targets = [target for source in volume.projected.sources for target in _projected(source)]
        yield from _warn(volume, "Projected", targets)


def _warn(volume: Volume, kind: str, targets: Iterable[_Target]) -> Iterator[str]:
    earlier: list[tuple[_Target, str]] = []
    for target in targets:
        folder = f"{target.path.rstrip('/')}/"
        if folder == "/":
            continue
        for other, other_folder in earlier:
            if folder.startswith(other_folder) or other_folder.startswith(folder):
                yield f"volume {go_quote(volume.name)} ({kind}): overlapping paths: {target} with {other}"
        earlier.append((target, folder))


def _projected(projection: VolumeProjection) -> Iterator[_Target]:
    if (config_map := projection.config_map) is not None and config_map.items:
        for item in config_map.items:
            yield _Target(item.path, f"ConfigMap {go_quote(config_map.name)}")
    elif (secret := projection.secret) is not None and secret.items:
        for item in secret.items:
            yield _Target(item.path, f"Secret {go_quote(secret.name)}")
    elif projection.downward_api is not None and projection.downward_api.items:
        for file in projection.downward_api.items:
            yield _Target(file.path, "DownwardAPI")
    elif projection.service_account_token is not None:
        yield _Target(projection.service_account_token.path, "ServiceAccountToken")
    elif (bundle := projection.cluster_trust_bundle) is not None:
        name = bundle.signer_name or "" if bundle.name is None else bundle.name
        yield _Target(bundle.path, f"ClusterTrustBundle {go_quote(name)}")
    elif (certificate := projection.pod_certificate) is not None:
        yield _Target(certificate.certificate_chain_path, "PodCertificate chain")
        yield _Target(certificate.key_path, "PodCertificate key")
        yield _Target(certificate.credential_bundle_path, "PodCertificate credential bundle")
