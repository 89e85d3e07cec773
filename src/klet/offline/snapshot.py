"""The last state of the cluster that the node used, and its format on disk."""

import logging
from datetime import datetime
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from klet.api.base import ApiObject
from klet.api.certificates import ClusterTrustBundle
from klet.api.codec import encode
from klet.api.meta import metadata_of
from klet.api.node import Node, RuntimeClass
from klet.api.pod import Pod
from klet.api.service import Service
from klet.checkpoint import Envelope
from klet.model.pods import PodUID
from klet.offline.object_formats import read_object, read_payload

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=ApiObject)
V_contra = TypeVar("V_contra", contravariant=True)

VERSION = 1


class AcceptedPods(Struct, frozen=True, kw_only=True):
    """The pods that the node last accepted."""

    node_name: str
    at: datetime
    """When this was accepted."""
    pods: tuple[Pod, ...]


class KeptCluster(Struct, frozen=True, kw_only=True):
    """The cluster objects, besides pods, that the agent needs to start pods."""

    node_name: str
    at: datetime
    nodes: tuple[Node, ...]
    """The node itself, if it was there."""
    services: tuple[Service, ...]
    runtime_classes: tuple[RuntimeClass, ...]
    trust_bundles: tuple[ClusterTrustBundle, ...] = ()
    """Those that volumes of pods show."""


class SnapshotStore(Protocol[V_contra]):
    """Where what was accepted outlives the agent."""

    async def save(self, value: V_contra) -> None:
        """Return when it is there for the next agent; raises CheckpointError."""
        ...


class _Pods(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    node_name: str
    at: datetime
    pods: tuple[msgspec.Raw, ...]


class _KeptCluster(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    node_name: str
    at: datetime
    nodes: tuple[msgspec.Raw, ...]
    services: tuple[msgspec.Raw, ...]
    runtime_classes: tuple[msgspec.Raw, ...]
    # Files from before have none.
    trust_bundles: tuple[msgspec.Raw, ...] = ()


class PodsFormat:
    """Accepted pods as klet's own checkpoint. A pod is encoded once, however often it is written."""

    def __init__(self) -> None:
        self._envelope = Envelope(kind="AcceptedPods", version=VERSION, payload=msgspec.Raw)
        self._encoded: dict[str, tuple[Pod, msgspec.Raw]] = {}

    def encode(self, value: AcceptedPods) -> bytes:
        self._encoded = {pod.metadata.uid: self._encode_pod(pod) for pod in value.pods}
        pods = tuple(raw for _, raw in self._encoded.values())
        payload = _Pods(node_name=value.node_name, at=value.at, pods=pods)
        return self._envelope.encode(msgspec.Raw(msgspec.json.encode(payload)))

    def decode(self, data: bytes) -> AcceptedPods:
        read = read_payload(_Pods, self._envelope.decode(data))
        pods = _all(Pod, read.pods)
        known = tuple(pod for pod in pods if isinstance(pod.metadata.uid, PodUID))
        if len(known) < len(pods):
            logger.warning("Kept pods without a valid UID are left out", extra={"count": len(pods) - len(known)})
        return AcceptedPods(node_name=read.node_name, at=read.at, pods=known)

    def _encode_pod(self, pod: Pod) -> tuple[Pod, msgspec.Raw]:
        known = self._encoded.get(pod.metadata.uid)
        return known if known is not None and known[0] is pod else (pod, _raw(pod))


class KeptClusterFormat:
    """The kept cluster as klet's own checkpoint."""

    def __init__(self) -> None:
        self._envelope = Envelope(kind="OfflineSurroundings", version=VERSION, payload=msgspec.Raw)

    def encode(self, value: KeptCluster) -> bytes:
        payload = _KeptCluster(
            node_name=value.node_name,
            at=value.at,
            nodes=tuple(map(_raw, value.nodes)),
            services=tuple(map(_raw, value.services)),
            runtime_classes=tuple(map(_raw, value.runtime_classes)),
            trust_bundles=tuple(map(_raw, value.trust_bundles)),
        )
        return self._envelope.encode(msgspec.Raw(msgspec.json.encode(payload)))

    def decode(self, data: bytes) -> KeptCluster:
        read = read_payload(_KeptCluster, self._envelope.decode(data))
        return KeptCluster(
            node_name=read.node_name,
            at=read.at,
            nodes=_all(Node, read.nodes),
            services=_all(Service, read.services),
            runtime_classes=_all(RuntimeClass, read.runtime_classes),
            trust_bundles=_all(ClusterTrustBundle, read.trust_bundles),
        )


def _all(kind: type[T], raws: tuple[msgspec.Raw, ...]) -> tuple[T, ...]:
    return tuple(read_object(kind, bytes(raw)) for raw in raws)


def _raw(obj: ApiObject) -> msgspec.Raw:
    """Drop the managed fields: they are long, and the agent does not read them."""
    slim = replace(obj, metadata=replace(metadata_of(obj), managed_fields=()))
    return msgspec.Raw(encode(slim))
