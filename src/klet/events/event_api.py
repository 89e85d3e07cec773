"""Requests for Events at the API server."""

from collections.abc import Iterator
from contextlib import contextmanager

from klet.api.event import Event
from klet.events.recorder import EventGone, EventRefused, EventsUnreachable
from klet.kube.client import KubeClient
from klet.kube.errors import ApiError, KubeError, NotFound


class ApiEvents:
    """Events at the API server."""

    def __init__(self, *, client: KubeClient) -> None:
        self._client = client

    async def create(self, event: Event) -> Event:
        with _event_errors():
            return await self._client.create(event, event.metadata.namespace)

    async def patch_count(self, event: Event) -> Event:
        assert event.last_timestamp is not None
        patch = {"count": event.count, "lastTimestamp": event.last_timestamp.wire(), "message": event.message}
        with _event_errors():
            return await self._client.patch(Event, event.metadata.name, event.metadata.namespace, patch=patch)


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
