"""The interface of the object stores (secret manager, config map manager), and one that caches nothing (`Get`)."""

import asyncio
from typing import Generic, Protocol, TypeVar

from klet.api.base import ApiObject
from klet.api.config import ConfigMap, Secret
from klet.kube.errors import NotFound
from klet.model.objects import ObjectMissing
from klet.model.pods import PodUID

A = TypeVar("A", bound=ApiObject)
T = TypeVar("T", bound=ConfigMap | Secret)
Kept_co = TypeVar("Kept_co", bound=ConfigMap | Secret, covariant=True)


class ObjectClient(Protocol):
    """The part of the API client that reads one object."""

    async def get(self, struct: type[A], name: str, namespace: str = "", *, resource_version: str = "") -> A: ...


class ObjectStore(Protocol[Kept_co]):
    """Objects of one kind, kept while a pod refers to them."""

    def add_reference(self, namespace: str, name: str, uid: PodUID) -> None: ...

    def drop_reference(self, namespace: str, name: str, uid: PodUID) -> None: ...

    async def get(self, namespace: str, name: str) -> Kept_co:
        """Return the object; raises ObjectMissing if there is none, and other errors if that cannot be known."""
        ...

    async def run(self) -> None: ...


class LiveObjects(Generic[T]):
    """Asks the API server each time (strategy `Get`). Nothing is kept, so nothing has to be registered."""

    def __init__(self, *, struct: type[T], client: ObjectClient) -> None:
        self._struct = struct
        self._client = client

    def add_reference(self, namespace: str, name: str, uid: PodUID) -> None:
        """Do nothing."""

    def drop_reference(self, namespace: str, name: str, uid: PodUID) -> None:
        """Do nothing."""

    async def get(self, namespace: str, name: str) -> T:
        return await read_live(self._client, self._struct, namespace, name)

    async def run(self) -> None:
        await asyncio.Event().wait()


async def read_live(client: ObjectClient, struct: type[T], namespace: str, name: str, *, version: str = "") -> T:
    """Ask the API server. Version "0" lets it answer from its own cache."""
    try:
        return await client.get(struct, name, namespace, resource_version=version)
    except NotFound as error:
        raise ObjectMissing(str(error)) from error


def version_of(obj: ConfigMap | Secret | None) -> str:
    """Return the resource version, empty for an object that does not exist."""
    return obj.metadata.resource_version if obj is not None else ""
