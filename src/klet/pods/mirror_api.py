"""Requests for mirror pods at the API server (mirror client)."""

from klet.api.node import Node
from klet.api.pod import Pod
from klet.api.pod_annotations import MIRROR_ANNOTATION
from klet.errors import KletError
from klet.kube.client import KubeClient
from klet.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from klet.kube.informer import Informer


class MirrorError(KletError):
    """The request failed; it is retried."""


class ApiMirrors:
    """Mirror pods at the API server."""

    def __init__(self, *, client: KubeClient, nodes: Informer[Node], node_name: str) -> None:
        self._client = client
        self._nodes = nodes
        self._node_name = node_name

    def node(self) -> Node | None:
        """Return the object of this node, if it is there."""
        return self._nodes.get(self._node_name)

    async def create(self, mirror: Pod) -> None:
        """Create a mirror; one that exists with the same hash is accepted. Raises MirrorError."""
        name, namespace = mirror.metadata.name, mirror.metadata.namespace
        try:
            await self._client.create(mirror, namespace)
        except AlreadyExists as error:
            try:
                there = await self._client.get(Pod, name, namespace)
            except KubeError as failure:
                raise MirrorError(str(failure)) from failure
            if _hash(there) != _hash(mirror):
                raise MirrorError(str(error)) from error
        except KubeError as error:
            raise MirrorError(str(error)) from error

    async def delete(self, mirror: Pod) -> bool:
        """Delete a mirror without grace; return False if it is gone or another one. Raises MirrorError."""
        found = mirror.metadata
        try:
            await self._client.delete(Pod, found.name, found.namespace, grace=0, uid=found.uid)
        except (NotFound, Conflict):
            return False
        except KubeError as error:
            raise MirrorError(str(error)) from error
        return True


def _hash(pod: Pod) -> str:
    return pod.metadata.annotations.get(MIRROR_ANNOTATION, "")
