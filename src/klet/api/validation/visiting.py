"""Walking over the containers of a pod in the order in which upstream visits them."""

from collections.abc import Iterator

from klet.api.container import Container, EphemeralContainer
from klet.api.pod import PodSpec
from klet.api.validation.fieldpath import FieldPath


def containers_with_paths(spec: PodSpec, path: FieldPath) -> Iterator[tuple[Container | EphemeralContainer, FieldPath]]:
    """Return init, regular and ephemeral containers, each with its field path."""
    for position, container in enumerate(spec.init_containers):
        yield container, path.child("initContainers").at(position)
    for position, container in enumerate(spec.containers):
        yield container, path.child("containers").at(position)
    for position, ephemeral in enumerate(spec.ephemeral_containers):
        yield ephemeral, path.child("ephemeralContainers").at(position)
