"""Requests for Events at the API server."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from klet.api.event import Event
from klet.events.recorder import EventGone, EventRefused, EventsUnreachable, EventUnneeded
from klet.kube.client import KubeClient
from klet.kube.errors import AlreadyExists, ApiError, KubeError, NotFound

NAMESPACE_TERMINATING: Final = "NamespaceTerminating"


class ApiEvents:
    """Events at the API server."""

    def __init__(self, *, client: KubeClient) -> None:
        self._client = client

    async def create(self, event: Event) -> None:
        with _event_errors():
            await self._client.submit(event, event.metadata.namespace)

    async def patch_count(self, event: Event) -> None:
        assert event.last_timestamp is not None
        patch = {"count": event.count, "lastTimestamp": event.last_timestamp.wire(), "message": event.message}
        with _event_errors():
            await self._client.patch(Event, event.metadata.name, event.metadata.namespace, patch=patch)


@contextmanager
def _event_errors() -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        raise EventGone(str(error)) from error
    except AlreadyExists as error:
        raise EventUnneeded(str(error)) from error
    except ApiError as error:
        if error.has_cause(NAMESPACE_TERMINATING):
            raise EventUnneeded(str(error)) from error
        raise EventRefused(str(error)) from error
    except KubeError as error:
        raise EventsUnreachable(str(error)) from error
