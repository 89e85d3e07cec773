"""Events of the core group (v1), which the kubelet sends."""

from klet.api.base import ApiObject, Int32
from klet.api.meta import ObjectMeta
from klet.api.references import ObjectReference
from klet.api.times import MicroTime, Time


class EventSource(ApiObject, frozen=True, kw_only=True):
    component: str = ""
    host: str = ""


class EventSeries(ApiObject, frozen=True, kw_only=True):
    count: Int32 = 0
    last_observed_time: MicroTime | None = None


class Event(ApiObject, frozen=True, kw_only=True):
    """Something that happened to an object, for people to read."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    source: EventSource = EventSource()
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
    count: Int32 = 0
    type: str = ""
    event_time: MicroTime | None = None
    series: EventSeries | None = None
    action: str = ""
    related: ObjectReference | None = None
    reporting_component: str = ""
    reporting_instance: str = ""
