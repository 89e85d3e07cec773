"""References to config maps, secrets, tokens and trust bundles: which ones a pod or one of its volumes uses. Pure."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from klet.api.certificates import ClusterTrustBundle
from klet.api.container import Container, EphemeralContainer
from klet.api.meta import LabelSelector
from klet.api.pod import Pod
from klet.api.selectors import label_selector
from klet.api.volume import Volume, secret_references
from klet.errors import KletError
from klet.model.hidden_fields import HidesFields


class ObjectKind(StrEnum):
    """The kinds that have a cache, as messages name them."""

    CONFIG_MAP = "configmap"
    SECRET = "secret"  # noqa: S105 - the name of a kind
    TRUST_BUNDLE = "clustertrustbundle"
    POD_CERTIFICATE = "podcertificate"


class ObjectRef(NamedTuple):
    """One object of a namespace."""

    kind: ObjectKind
    namespace: str
    name: str


ANY_TRUST_BUNDLE: Final = ObjectRef(ObjectKind.TRUST_BUNDLE, "", "")
"""Volumes choose trust bundles by their labels, so any of them may matter."""


def certificates_of(namespace: str, pod: str) -> ObjectRef:
    """Return what stands for the certificates of a pod: they are its own, so its name will do."""
    return ObjectRef(ObjectKind.POD_CERTIFICATE, namespace, pod)


class ObjectMissing(KletError):
    """A config map or secret that does not exist."""


class IssuedToken(HidesFields, frozen=True):
    """A token of a service account, and when to ask for the next one; None if it never has to be renewed."""

    HIDDEN = frozenset({"token"})

    token: str
    refresh_at: datetime | None
    expires_at: datetime | None = None


class PodCredentials(HidesFields, frozen=True, kw_only=True):
    """The key of a pod, and the certificates that are issued for it. Both are PEM."""

    HIDDEN = frozenset({"key"})

    key: bytes
    chain: bytes


def pod_secrets(pod: Pod) -> frozenset[str]:
    """Return the names of all secrets that a pod refers to by itself."""
    names = [reference.name for reference in pod.spec.image_pull_secrets]
    for container in _containers(pod):
        names += container_secrets(container)
    for volume in pod.spec.volumes:
        names += volume_secrets(volume)
        names += _legacy_secrets(volume)
    return frozenset(name for name in names if name)


def pod_config_maps(pod: Pod) -> frozenset[str]:
    """Return the names of all config maps that a pod refers to."""
    names: list[str] = []
    for container in _containers(pod):
        names += container_config_maps(container)
    for volume in pod.spec.volumes:
        names += volume_config_maps(volume)
    return frozenset(name for name in names if name)


def container_config_maps(container: Container | EphemeralContainer) -> list[str]:
    """Return the names of the config maps that a container's environment refers to."""
    whole = [source.config_map_ref.name for source in container.env_from if source.config_map_ref is not None]
    sources = [variable.value_from for variable in container.env if variable.value_from is not None]
    return whole + [each.config_map_key_ref.name for each in sources if each.config_map_key_ref is not None]


def container_secrets(container: Container | EphemeralContainer) -> list[str]:
    """Return the names of the secrets that a container's environment refers to."""
    whole = [source.secret_ref.name for source in container.env_from if source.secret_ref is not None]
    sources = [variable.value_from for variable in container.env if variable.value_from is not None]
    return whole + [each.secret_key_ref.name for each in sources if each.secret_key_ref is not None]


def volume_secrets(volume: Volume) -> list[str]:
    """Return the names of the secrets whose content a volume shows."""
    names = [volume.secret.secret_name] if volume.secret is not None else []
    sources = volume.projected.sources if volume.projected is not None else ()
    return names + [source.secret.name for source in sources if source.secret is not None]


def volume_config_maps(volume: Volume) -> list[str]:
    """Return the names of the config maps whose content a volume shows."""
    names = [volume.config_map.name] if volume.config_map is not None else []
    sources = volume.projected.sources if volume.projected is not None else ()
    return names + [source.config_map.name for source in sources if source.config_map is not None]


def volume_objects(volume: Volume, pod: Pod) -> frozenset[ObjectRef]:
    """Return everything whose content a volume of a pod shows."""
    namespace = pod.metadata.namespace
    refs = {ObjectRef(ObjectKind.CONFIG_MAP, namespace, name) for name in volume_config_maps(volume)}
    refs |= {ObjectRef(ObjectKind.SECRET, namespace, name) for name in volume_secrets(volume)}
    sources = volume.projected.sources if volume.projected is not None else ()
    if any(source.cluster_trust_bundle is not None for source in sources):
        refs.add(ANY_TRUST_BUNDLE)
    if any(source.pod_certificate is not None for source in sources):
        refs.add(certificates_of(namespace, pod.metadata.name))
    return frozenset(refs)


def _containers(pod: Pod) -> Iterator[Container | EphemeralContainer]:
    yield from pod.spec.init_containers
    yield from pod.spec.containers
    yield from pod.spec.ephemeral_containers


def _legacy_secrets(volume: Volume) -> Iterator[str]:
    """Return secrets that a driver needs to mount a volume; those of a persistent volume are read when needed."""
    if volume.azure_file is not None:
        yield volume.azure_file.secret_name
    if volume.csi is not None and volume.csi.node_publish_secret_ref is not None:
        yield volume.csi.node_publish_secret_ref.name
    for reference in secret_references(volume):
        yield reference.name


def choose_bundles(
    bundles: Iterable[ClusterTrustBundle], *, signer: str, selector: LabelSelector | None
) -> list[ClusterTrustBundle]:
    """Return those of a signer that a selector takes; without a selector none."""
    chosen = label_selector(selector)
    return [each for each in bundles if each.spec.signer_name == signer and chosen.matches(each.metadata.labels)]
