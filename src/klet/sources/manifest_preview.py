"""Reads a manifest as the pod that it would be on this node, without anything coming of it (`klet fit`)."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from klet.api.node import RuntimeClass
from klet.api.pod import Pod
from klet.api.pod_annotations import SOURCE_ANNOTATION
from klet.api.runtime_classes import add_overhead
from klet.api.static_pods import StaticOrigin
from klet.api.validation.options import STATIC_POD, PodValidationOptions
from klet.model.pods import API_SOURCE, FILE_SOURCE, SYSTEM_CRITICAL_PRIORITY
from klet.sources.decode import Origin, decode_bound_pod, decode_pod
from klet.sources.gated_fields import GATED_FIELDS, drop_disabled_fields

SHOWN: Final = "the manifest"
_PRIORITIES: Final[Mapping[str, int]] = MappingProxyType(
    {"system-cluster-critical": SYSTEM_CRITICAL_PRIORITY, "system-node-critical": SYSTEM_CRITICAL_PRIORITY + 1000}
)
"""What the API server makes of the classes that every cluster has; it alone knows the others."""


class ManifestPreview:
    """Decodes manifests by the rules of this node."""

    def __init__(
        self,
        *,
        node_name: str,
        has_api: bool,
        options: PodValidationOptions = STATIC_POD,
        prevent_api_references: bool = True,
        classes: Mapping[str, RuntimeClass] = MappingProxyType({}),
        is_enabled: Callable[[str], bool] = lambda _gate: True,
    ) -> None:
        self._has_api = has_api
        self._origin = Origin(
            kind=StaticOrigin.FILE,
            location="",
            node_name=node_name,
            shown=SHOWN,
            prevent_api_references=prevent_api_references,
            options=options,
        )
        self._classes = dict(classes)
        self._disabled = frozenset(gate for gate in GATED_FIELDS if not is_enabled(gate))

    def read(self, data: bytes, *, source: str = "") -> Pod:
        """Return the pod as it would come from the directory of static pods, or bound by a scheduler (`api`).

        Without a source it is what this node mostly runs. Raises ManifestError.
        """
        if source == API_SOURCE or (not source and self._has_api):
            pod = _with_priority(decode_bound_pod(data, self._origin))
            annotated = API_SOURCE
        else:
            pod, annotated = decode_pod(data, self._origin), FILE_SOURCE
        pod = add_overhead(drop_disabled_fields(pod, self._disabled), self._classes)
        annotations = {**pod.metadata.annotations, SOURCE_ANNOTATION: annotated}
        return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


def _with_priority(pod: Pod) -> Pod:
    """Return the pod with the priority that the API server gives it, where that can be known."""
    priority = _PRIORITIES.get(pod.spec.priority_class_name)
    if pod.spec.priority is not None or priority is None:
        return pod
    return replace(pod, spec=replace(pod.spec, priority=priority))
