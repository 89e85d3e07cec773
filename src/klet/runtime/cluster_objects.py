"""The services and runtime classes of the cluster, as the start of a pod needs them. Only a node with an API server
imports this.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from klet.aio.clock import Clock
from klet.api.node import RuntimeClass
from klet.api.service import Service
from klet.kube.informer import Informer
from klet.runtime.runtime_class import RuntimeClassMissing

FIRST_LIST: Final = timedelta(seconds=2)
"""How long a pod waits for the first list of something; then there is none yet."""


class ClusterServices:
    """The services of the cluster. Containers get their addresses when they start."""

    def __init__(self, *, services: Informer[Service], clock: Clock) -> None:
        self._services = services
        self._clock = clock

    def services(self) -> Sequence[Service] | None:
        return self._services.all() if self._services.is_synced else None

    async def until_read(self) -> None:
        if not self._services.is_synced:
            await self._clock.wait(self._services.until_synced(), at_most=FIRST_LIST)


class ClusterRuntimeClasses:
    """The runtime classes of the cluster."""

    def __init__(self, *, classes: Informer[RuntimeClass], clock: Clock) -> None:
        self._classes = classes
        self._clock = clock

    async def handler_of(self, name: str) -> str:
        if not self._classes.is_synced:
            await self._clock.wait(self._classes.until_synced(), at_most=FIRST_LIST)
        found = self._classes.get(name)
        if found is None:
            raise RuntimeClassMissing(f'runtimeclass.node.k8s.io "{name}" not found')
        return found.handler
