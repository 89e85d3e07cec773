"""What an answer of the API server means for an Event."""

import pytest

from klet.api.event import Event
from klet.api.meta import ObjectMeta, Status, StatusCause, StatusDetails
from klet.events.event_api import ApiEvents
from klet.events.recorder import EventGone, EventRefused, EventsUnreachable, EventUnneeded
from klet.kube.errors import Unreachable, api_error

LEAVING = StatusDetails(causes=(StatusCause(reason="NamespaceTerminating", field="metadata.namespace"),))


class Answering:
    """A client that gets one error."""

    def __init__(self, error):
        self._error = error

    async def submit(self, *_args):
        raise self._error


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        pytest.param(api_error(Status(code=404, reason="NotFound")), EventGone, id="the namespace is gone"),
        pytest.param(
            api_error(Status(code=403, reason="Forbidden", details=LEAVING)), EventUnneeded, id="the namespace goes"
        ),
        pytest.param(api_error(Status(code=409, reason="AlreadyExists")), EventUnneeded, id="it was written before"),
        pytest.param(api_error(Status(code=403, reason="Forbidden")), EventRefused, id="no right to write Events"),
        pytest.param(api_error(Status(code=422, reason="Invalid")), EventRefused, id="it breaks a rule"),
        pytest.param(Unreachable("refused"), EventsUnreachable, id="no answer"),
    ],
)
async def test_meaning_of_an_answer(error, raised):
    with pytest.raises(raised) as caught:
        await ApiEvents(client=Answering(error)).create(Event(metadata=ObjectMeta(name="e", namespace="default")))
    assert type(caught.value) is raised
