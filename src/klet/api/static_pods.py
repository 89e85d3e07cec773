"""What a node does to pods from its own manifests: identity, place, toleration, and no use of API objects."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from klet.api.codec import encode
from klet.api.container import Container, EphemeralContainer
from klet.api.placement import Toleration
from klet.api.pod import Pod, PodSpec
from klet.api.pod_annotations import HASH_ANNOTATION
from klet.api.volume import Volume, VolumeProjection, secret_references

_FNV_OFFSET: Final = 0x6C62272E07BB014262B821756295C58D
_FNV_PRIME: Final = 0x0000000001000000000000000000013B
_FNV_MASK: Final = (1 << 128) - 1
_TOLERATE_ALL: Final = Toleration(operator="Exists", effect="NoExecute")


class StaticOrigin(StrEnum):
    """Where a manifest came from."""

    FILE = "file"
    URL = "url"


def default_static_pod(pod: Pod, *, node_name: str, origin: StaticOrigin, location: str) -> Pod:
    """Give a decoded and defaulted manifest pod its uid, name, namespace and node.

    The uid changes with the content and, for a file, with node and path. Upstream hashes a Go-specific dump of the
    pod, so the value itself differs from upstream's.
    """
    meta, spec = pod.metadata, pod.spec
    uid = meta.uid or static_pod_uid(pod, node_name=node_name, origin=origin, location=location)
    if origin is StaticOrigin.FILE:
        spec = replace(spec, tolerations=_with_toleration(spec.tolerations))
    return replace(
        pod,
        metadata=replace(
            meta,
            uid=uid,
            name=f"{meta.name}-{node_name.lower()}",
            namespace=meta.namespace or "default",
            annotations={**meta.annotations, HASH_ANNOTATION: uid},
        ),
        spec=replace(spec, node_name=node_name),
        status=replace(pod.status, phase="Pending"),
    )


def static_pod_uid(pod: Pod, *, node_name: str, origin: StaticOrigin, location: str) -> str:
    host = f"host:{node_name}" if origin is StaticOrigin.FILE else ""
    # The name of a file is bytes, and need not be text.
    return fnv128a(encode(pod) + f"{host}{origin}:{location}".encode(errors="surrogateescape"))


def fnv128a(data: bytes) -> str:
    """Return the 128-bit FNV-1a hash, in lowercase hexadecimal."""
    value = _FNV_OFFSET
    for byte in data:
        value = ((value ^ byte) * _FNV_PRIME) & _FNV_MASK
    return f"{value:032x}"


def find_static_pod_problem(pod: Pod, *, prevent_api_references: bool = True) -> str | None:
    """Return why a static pod cannot run, or None; the switch is gate PreventStaticPodAPIReferences."""
    spec = pod.spec
    if not prevent_api_references:
        return _problem_without_gate(spec)
    for resource, is_used in (
        ("serviceaccounts", bool(spec.service_account_name)),
        ("secrets", any(_secret_uses(spec))),
        ("configmaps", any(_config_map_uses(spec))),
        ("resourceclaims", bool(spec.resource_claims)),
    ):
        if is_used:
            return f"static pods may not reference {resource}"
    return next(filter(None, map(_volume_problem, spec.volumes)), None)


def _with_toleration(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    """Tolerate every NoExecute taint without a time limit; a copy of the toleration with a time limit is replaced."""
    kept = tuple(
        _TOLERATE_ALL if replace(toleration, toleration_seconds=None) == _TOLERATE_ALL else toleration
        for toleration in tolerations
    )
    return kept if _TOLERATE_ALL in kept else (*kept, _TOLERATE_ALL)


def _problem_without_gate(spec: PodSpec) -> str | None:
    for volume in spec.volumes:
        sources = () if volume.projected is None else volume.projected.sources
        if any(source.cluster_trust_bundle is not None for source in sources):
            return "static pods may not use ClusterTrustBundle projected volume sources"
    return "static pods may not use ResourceClaims" if spec.resource_claims else None


def _containers(spec: PodSpec) -> tuple[Container | EphemeralContainer, ...]:
    return (*spec.init_containers, *spec.containers, *spec.ephemeral_containers)


def _secret_uses(spec: PodSpec) -> Iterator[bool]:
    yield bool(spec.image_pull_secrets)
    for container in _containers(spec):
        yield any(source.secret_ref is not None for source in container.env_from)
        yield any(
            variable.value_from is not None and variable.value_from.secret_key_ref is not None
            for variable in container.env
        )
    for volume in spec.volumes:
        yield volume.secret is not None
        yield volume.azure_file is not None and bool(volume.azure_file.secret_name)
        yield volume.csi is not None and volume.csi.node_publish_secret_ref is not None
        yield bool(secret_references(volume))
        yield volume.projected is not None and any(source.secret is not None for source in volume.projected.sources)


def _config_map_uses(spec: PodSpec) -> Iterator[bool]:
    for container in _containers(spec):
        yield any(source.config_map_ref is not None for source in container.env_from)
        yield any(
            variable.value_from is not None and variable.value_from.config_map_key_ref is not None
            for variable in container.env
        )
    for volume in spec.volumes:
        yield volume.config_map is not None
        yield volume.projected is not None and any(source.config_map is not None for source in volume.projected.sources)


def _volume_problem(volume: Volume) -> str | None:
    if volume == Volume(name=volume.name):
        return f'unknown volume type for volume  "{volume.name}"'
    for resource, source in (
        ("csidrivers (via CSI volumes)", volume.csi),
        ("endpoints (via glusterFS volumes)", volume.glusterfs),
        ("persistentvolumeclaims", volume.persistent_volume_claim),
        ("persistentvolumeclaims (via ephemeral volumes)", volume.ephemeral),
        ("secrets (via azureFile volumes)", volume.azure_file),
    ):
        if source is not None:
            return f"static pods may not reference {resource}"
    sources = () if volume.projected is None else volume.projected.sources
    return next(filter(None, (_projection_problem(volume.name, source) for source in sources)), None)


def _projection_problem(volume_name: str, source: VolumeProjection) -> str | None:
    if source == VolumeProjection():
        return f'unknown source for projected volume "{volume_name}"'
    for resource, kind in (
        ("serviceaccounts (via projected volumes)", source.service_account_token),
        ("clustertrustbundles", source.cluster_trust_bundle),
        ("podcertificates", source.pod_certificate),
    ):
        if kind is not None:
            return f"static pods may not reference {resource}"
    return None
