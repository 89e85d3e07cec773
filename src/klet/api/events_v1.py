"""Events of the group events.k8s.io/v1, which newer clients read and write."""

from klet.api.base import ApiObject, Int32, required
from klet.api.event import EventSource
from klet.api.meta import ObjectMeta
from klet.api.references import ObjectReference
from klet.api.times import MicroTime, Time


class EventSeries(ApiObject, frozen=True, kw_only=True):
    count: Int32 = required(int)
    last_observed_time: MicroTime | None = None


class Event(ApiObject, frozen=True, kw_only=True):
    """Something that happened to an object, in the newer shape."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    event_time: MicroTime | None = None
    series: EventSeries | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference = ObjectReference()
    related: ObjectReference | None = None
    note: str = ""
    type: str = ""
    deprecated_source: EventSource = EventSource()
    deprecated_first_timestamp: Time | None = None
    deprecated_last_timestamp: Time | None = None
    deprecated_count: Int32 = 0
