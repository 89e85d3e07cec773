import pytest

from klet.wire import containerd_events_service_pb2, cri_v1_pb2
from klet.wire.methods import Method, method_of, methods_of, service_handler

RUNTIME = cri_v1_pb2.DESCRIPTOR.services_by_name["RuntimeService"]
EVENTS = containerd_events_service_pb2.DESCRIPTOR.services_by_name["Events"]

VERSION = Method(
    name="Version",
    path="/runtime.v1.RuntimeService/Version",
    request=cri_v1_pb2.VersionRequest,
    response=cri_v1_pb2.VersionResponse,
    streams_requests=False,
    streams_responses=False,
)


def test_a_unary_method():
    assert methods_of(RUNTIME)["Version"] == VERSION


def test_a_streaming_method():
    method = methods_of(EVENTS)["Subscribe"]
    assert method.path == "/containerd.services.events.v1.Events/Subscribe"
    assert (method.streams_requests, method.streams_responses) == (False, True)


def test_method_of_gives_the_same_with_known_classes():
    assert method_of(RUNTIME, "Version", cri_v1_pb2.VersionRequest, cri_v1_pb2.VersionResponse) == VERSION


def test_method_of_refuses_the_wrong_classes():
    with pytest.raises(TypeError, match=r"runtime\.v1\.RuntimeService/Version is runtime\.v1\.VersionRequest to"):
        method_of(RUNTIME, "Version", cri_v1_pb2.StatusRequest, cri_v1_pb2.VersionResponse)


def test_a_handler_refuses_unknown_methods():
    with pytest.raises(TypeError, match=r"runtime\.v1\.RuntimeService has no method Fly"):
        service_handler(RUNTIME, {"Fly": print})
