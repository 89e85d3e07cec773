"""Requests for the pods of this node at the API server, for the status manager."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from klet.api.pod import Pod
from klet.kube.client import KubeClient
from klet.kube.errors import Conflict, KubeError, NotFound
from klet.kube.informer import Informer
from klet.model.pods import uid_of
from klet.status.manager import PodApiError, PodGone


class ApiPods:
    """Pods at the API server."""

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


@contextmanager
def _pod_errors() -> Iterator[None]:
    try:
        yield
    except (NotFound, Conflict) as error:
        raise PodGone(str(error)) from error
    except KubeError as error:
        raise PodApiError(str(error)) from error
