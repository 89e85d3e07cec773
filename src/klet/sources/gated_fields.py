"""Fields of pods that the node ignores while their feature gate is off, as upstream's kubelet does for pods of all
sources: an API server with other gates may well set them.

They are left out here, so nothing behind the sources has to know of these gates. Gates that reject a pod or a volume
are asked elsewhere: `admission/checks.py`, `volumes/build.py`.
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
        self._slim: dict[str, dict[int, tuple[Pod, Pod]]] = {}
        """What was made of each pod of a source, by the identity of what came: a pod that stays must stay the same."""

    def set_pods(self, source: str, pods: tuple[Pod, ...]) -> None:
        if self._disabled:
            known = self._slim.get(source, {})
            kept = {id(pod): known.get(id(pod)) or (pod, drop_disabled_fields(pod, self._disabled)) for pod in pods}
            self._slim[source] = kept
            pods = tuple(kept[id(pod)][1] for pod in pods)
        self._sink.set_pods(source, pods)


def drop_disabled_fields(pod: Pod, disabled: frozenset[str]) -> Pod:
    """Return the pod without the fields of these gates."""
    spec = pod.spec
    for gate in sorted(disabled & GATED_FIELDS.keys()):
        spec = GATED_FIELDS[gate](spec)
    return pod if spec is pod.spec else replace(pod, spec=spec)


def _without_hostname_override(spec: PodSpec) -> PodSpec:
    return replace(spec, hostname_override=None) if spec.hostname_override is not None else spec


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


GATED_FIELDS: Final[Mapping[str, Change]] = MappingProxyType(
    {
        "ContainerRestartRules": _without_restart_rules,
        "EnvFiles": _without_env_files,
        "HostnameOverride": _without_hostname_override,
    }
)
