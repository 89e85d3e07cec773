"""Parts of an API server that a test plays by hand."""

import asyncio

import pytest

from klet.aio.broadcast import Broadcast
from klet.api.config import ConfigMap, Secret
from klet.api.meta import ObjectMeta, Status
from klet.errors import KletError
from klet.kube.errors import NotFound
from klet.kube.informer import ObjectKey
from klet.testing.clock import ManualClock


def make_config_map(version="1", *, name="cfg", immutable=None, **data):
    meta = ObjectMeta(name=name, namespace="ns", resource_version=version)
    return ConfigMap(metadata=meta, immutable=immutable, data=data)


class HandFollower:
    """A follower whose news a test gives."""

    def __init__(self, namespace, name):
        self.key = ObjectKey(namespace, name)
        self.obj = None
        self.runs = 0
        self._synced = asyncio.Event()
        self._changes = Broadcast()

    @property
    def is_synced(self):
        return self._synced.is_set()

    async def until_synced(self):
        await self._synced.wait()

    def get(self, name, namespace=""):
        return self.obj if (namespace, name) == self.key else None

    def changes(self):
        return self._changes.subscribe()

    async def run(self):
        self.runs += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.runs -= 1

    def show(self, obj):
        """The API server has this object now; None: it has none."""
        self.obj = obj
        self._synced.set()
        self._changes.send(self.key)


class HandClient:
    """A client whose answers a test puts in."""

    def __init__(self):
        self.objects: dict[tuple[str, str], ConfigMap | Secret] = {}
        self.error: KletError | None = None
        self.asked: list[tuple[str, str, str]] = []

    async def get(self, struct, name, namespace="", *, resource_version=""):
        self.asked.append((namespace, name, resource_version))
        if self.error is not None:
            raise self.error
        found = self.objects.get((namespace, name))
        if found is None:
            raise NotFound(Status(message=f'{struct.__name__.lower()}s "{name}" not found', code=404))
        return found


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def client():
    return HandClient()


@pytest.fixture
def config_map():
    """Makes config maps."""
    return make_config_map


@pytest.fixture
def hand_follower():
    return HandFollower
