"""Which pods and objects are worth keeping, and how urgent that is. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto

from msgspec.structs import replace

from klet.api.certificates import ClusterTrustBundle
from klet.api.meta import ObjectMeta
from klet.api.node import Node, NodeStatus
from klet.api.pod import Pod, PodStatus
from klet.api.service import Service
from klet.model.objects import ObjectKind, ObjectRef, choose_bundles, pod_config_maps, pod_secrets
from klet.model.pods import PodUID, is_mirror, is_static, uid_of

KUBERNETES = ("default", "kubernetes")
"""The service that is in the environment of every container."""
TERMINAL = frozenset({"Succeeded", "Failed"})


class Urgency(Enum):
    """When something has to be on disk."""

    BEFORE_ACTING = auto()
    SOON = auto()
    NEVER = auto()


def choose_pods(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return those that only the API server knows. A mirror shows a static pod, which has a manifest of its own."""
    return tuple(pod for pod in pods if not is_mirror(pod) and not is_static(pod))


def compare_pods(kept: Mapping[PodUID, Pod], pods: Sequence[Pod]) -> Urgency:
    """Return how urgent a write is: a restart must know every pod begun, changed or removed; a status can wait."""
    if kept.keys() != {uid_of(pod) for pod in pods}:
        return Urgency.BEFORE_ACTING
    changed = [(kept[uid_of(pod)], pod) for pod in pods if kept[uid_of(pod)] is not pod]
    if any(_wanted(old) != _wanted(new) for old, new in changed):
        return Urgency.BEFORE_ACTING
    return Urgency.SOON if any(old.status != new.status for old, new in changed) else Urgency.NEVER


def find_objects(pods: Iterable[Pod]) -> frozenset[ObjectRef]:
    """Return the config maps and secrets that these pods refer to."""
    found: set[ObjectRef] = set()
    for pod in pods:
        namespace = pod.metadata.namespace
        found |= {ObjectRef(ObjectKind.CONFIG_MAP, namespace, name) for name in pod_config_maps(pod)}
        found |= {ObjectRef(ObjectKind.SECRET, namespace, name) for name in pod_secrets(pod)}
    return frozenset(found)


def choose_services(services: Iterable[Service], pods: Iterable[Pod]) -> tuple[Service, ...]:
    """Return the services that are in the environment of these pods' containers."""
    namespaces = {pod.metadata.namespace for pod in pods}
    return tuple(each for each in services if each.metadata.namespace in namespaces or _place(each) == KUBERNETES)


def choose_bundles_shown(bundles: Sequence[ClusterTrustBundle], pods: Iterable[Pod]) -> tuple[ClusterTrustBundle, ...]:
    """Return the trust bundles that volumes of these pods show."""
    chosen: set[str] = set()
    for source in (
        projection.cluster_trust_bundle
        for pod in pods
        for volume in pod.spec.volumes
        if volume.projected is not None
        for projection in volume.projected.sources
    ):
        if source is None:
            continue
        if source.name is not None:
            chosen.add(source.name)
        elif source.signer_name is not None:
            found = choose_bundles(bundles, signer=source.signer_name, selector=source.label_selector)
            chosen |= {each.metadata.name for each in found}
    return tuple(each for each in bundles if each.metadata.name in chosen)


def lasting_node(node: Node) -> Node:
    """Return a node without what changes by itself: its heartbeats and its images."""
    status = NodeStatus(addresses=node.status.addresses, capacity=node.status.capacity)
    return replace(node, metadata=_lasting_meta(node.metadata), status=status)


def _wanted(pod: Pod) -> tuple[Pod, bool]:
    """Return a pod without what its node reports, but for whether it is over: such a pod must not run again."""
    lasting = replace(pod, metadata=_lasting_meta(pod.metadata), status=PodStatus())
    return lasting, pod.status.phase in TERMINAL


def _lasting_meta(meta: ObjectMeta) -> ObjectMeta:
    return replace(meta, resource_version="", managed_fields=())


def _place(service: Service) -> tuple[str, str]:
    return service.metadata.namespace, service.metadata.name
