"""Fields of pods whose feature gate is off: they are left out, as an API server with that gate off would do.

So nothing behind the sources has to know of these gates.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

from msgspec.structs import replace

from klet.api.container import Container, EnvVar, EphemeralContainer
from klet.api.pod import Pod, PodSpec
from klet.api.pod_resources import is_sidecar
from klet.model.roles import PodSink

Change: TypeAlias = Callable[[PodSpec], PodSpec]
C = TypeVar("C", Container, EphemeralContainer)


class GatedPods:
    """Passes pods on without the fields of disabled gates."""

    def __init__(self, *, is_enabled: Callable[[str], bool], sink: PodSink) -> None:
        self._disabled = frozenset(gate for gate in GATED_FIELDS if not is_enabled(gate))
        self._sink = sink

    def set_pods(self, source: str, pods: tuple[Pod, ...]) -> None:
        self._sink.set_pods(source, tuple(drop_disabled_fields(pod, self._disabled) for pod in pods))


def drop_disabled_fields(pod: Pod, disabled: frozenset[str]) -> Pod:
    """Return the pod without the fields of these gates."""
    spec = pod.spec
    for gate in sorted(disabled & GATED_FIELDS.keys()):
        spec = GATED_FIELDS[gate](spec)
    return pod if spec is pod.spec else replace(pod, spec=spec)


def _without_hostname_override(spec: PodSpec) -> PodSpec:
    return replace(spec, hostname_override=None) if spec.hostname_override is not None else spec


def _without_image_volumes(spec: PodSpec) -> PodSpec:
    """Drop such volumes; a container that mounts one then fails."""
    kept = tuple(volume for volume in spec.volumes if volume.image is None)
    return replace(spec, volumes=kept) if len(kept) < len(spec.volumes) else spec


def _without_env_files(spec: PodSpec) -> PodSpec:
    """Drop the sources of such variables; they stay, and are empty."""
    return replace(
        spec,
        containers=tuple(map(_without_file_refs, spec.containers)),
        init_containers=tuple(map(_without_file_refs, spec.init_containers)),
        ephemeral_containers=tuple(map(_without_file_refs, spec.ephemeral_containers)),
    )


def _without_file_refs(container: C) -> C:
    env = tuple(map(_without_file_ref, container.env))
    return replace(container, env=env) if env != container.env else container


def _without_file_ref(variable: EnvVar) -> EnvVar:
    if variable.value_from is None or variable.value_from.file_key_ref is None:
        return variable
    return replace(variable, value_from=None)


def _without_restart_rules(spec: PodSpec) -> PodSpec:
    """Drop restart rules, and restart policies of all containers but sidecars."""
    return replace(
        spec,
        containers=tuple(map(_without_own_policy, spec.containers)),
        init_containers=tuple(
            replace(each, restart_policy_rules=()) if is_sidecar(each) else _without_own_policy(each)
            for each in spec.init_containers
        ),
    )


def _without_own_policy(container: Container) -> Container:
    return replace(container, restart_policy=None, restart_policy_rules=())


def _without_pod_level_resources(spec: PodSpec) -> PodSpec:
    return replace(spec, resources=None) if spec.resources is not None else spec


GATED_FIELDS: Final[Mapping[str, Change]] = MappingProxyType(
    {
        "ContainerRestartRules": _without_restart_rules,
        "EnvFiles": _without_env_files,
        "HostnameOverride": _without_hostname_override,
        "ImageVolume": _without_image_volumes,
        "PodLevelResources": _without_pod_level_resources,
    }
)
