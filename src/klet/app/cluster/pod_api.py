"""Pods, mirrors and Events at the API server, in the words of the parts that need them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from klet.api.event import Event
from klet.api.node import Node
from klet.api.pod import Pod
from klet.events.recorder import EventGone, EventRefused, EventsUnreachable
from klet.kube.client import KubeClient
from klet.kube.errors import AlreadyExists, ApiError, Conflict, KubeError, NotFound
from klet.kube.informer import Informer
from klet.model.pods import MIRROR_ANNOTATION, uid_of
from klet.pods.mirrors import MirrorError
from klet.status.publisher import PodApiError, PodGone


class ApiPods:
    """The pods of this node at the API server."""

    def __init__(self, *, client: KubeClient, pods: Informer[Pod]) -> None:
        self._client = client
        self._pods = pods

    def seen(self, pod: Pod) -> Pod | None:
        found = self._pods.get(pod.metadata.name, pod.metadata.namespace)
        return found if found is not None and uid_of(found) == uid_of(pod) else None

    async def read(self, pod: Pod) -> Pod:
        # Pods come from the watch, so one that it does not show any more has gone. To ask for it would be refused: a
        # node may only read what is bound to it.
        if self._pods.is_synced and self.seen(pod) is None:
            raise PodGone("the watch does not show it any more")
        with _pod_errors():
            found = await self._client.get(Pod, pod.metadata.name, pod.metadata.namespace)
        if uid_of(found) != uid_of(pod):
            raise PodGone("another pod has its name")
        return found

    async def patch_status(self, pod: Pod, patch: dict[str, Any]) -> Pod:
        with _pod_errors():
            return await self._client.patch(
                Pod, pod.metadata.name, pod.metadata.namespace, patch=patch, subresource="status"
            )

    async def delete(self, pod: Pod) -> None:
        with _pod_errors():
            await self._client.delete(Pod, pod.metadata.name, pod.metadata.namespace, grace=0, uid=pod.metadata.uid)


class ApiMirrors:
    """Mirror pods at the API server."""

    def __init__(self, *, client: KubeClient, nodes: Informer[Node], node_name: str) -> None:
        self._client = client
        self._nodes = nodes
        self._node_name = node_name

    def node(self) -> Node | None:
        return self._nodes.get(self._node_name)

    async def create(self, mirror: Pod) -> None:
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
        found = mirror.metadata
        try:
            await self._client.delete(Pod, found.name, found.namespace, grace=0, uid=found.uid)
        except (NotFound, Conflict):
            return False
        except KubeError as error:
            raise MirrorError(str(error)) from error
        return True


class ApiEvents:
    """Events at the API server."""

    def __init__(self, *, client: KubeClient) -> None:
        self._client = client

    async def create(self, event: Event) -> Event:
        with _event_errors():
            return await self._client.create(event, event.metadata.namespace)

    async def count_up(self, event: Event) -> Event:
        assert event.last_timestamp is not None
        patch = {"count": event.count, "lastTimestamp": event.last_timestamp.wire(), "message": event.message}
        with _event_errors():
            return await self._client.patch(Event, event.metadata.name, event.metadata.namespace, patch=patch)


@contextmanager
def _pod_errors() -> Iterator[None]:
    try:
        yield
    except (NotFound, Conflict) as error:
        raise PodGone(str(error)) from error
    except KubeError as error:
        raise PodApiError(str(error)) from error


@contextmanager
def _event_errors() -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        raise EventGone(str(error)) from error
    except ApiError as error:
        raise EventRefused(str(error)) from error
    except KubeError as error:
        raise EventsUnreachable(str(error)) from error


def _hash(pod: Pod) -> str:
    return pod.metadata.annotations.get(MIRROR_ANNOTATION, "")
