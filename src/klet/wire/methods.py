"""The methods of a gRPC service as its descriptor states them: path, message classes, streaming.

Clients call with a Method, servers answer through service_handler(); there are no generated stubs.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from msgspec import Struct

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


class Method(Struct, Generic[RequestT, ResponseT], frozen=True):
    """One call of a service."""

    name: str
    path: str
    request: type[RequestT]
    response: type[ResponseT]
    streams_requests: bool
    streams_responses: bool


def answer_reader(response: type[ResponseT]) -> Callable[[bytes], ResponseT | None]:
    """Reads an answer, or gives None for bytes that are none: what gRPC makes of an error, after a long complaint."""

    def read(data: bytes) -> ResponseT | None:
        try:
            return response.FromString(data)
        except DecodeError:
            return None

    return read


def methods_of(service: ServiceDescriptor) -> Mapping[str, Method[Message, Message]]:
    """All methods by name; `service` is `x_pb2.DESCRIPTOR.services_by_name["Name"]`."""
    return {
        method.name: _method(method, GetMessageClass(method.input_type), GetMessageClass(method.output_type))
        for method in service.methods
    }


def method_of(
    service: ServiceDescriptor, name: str, request: type[RequestT], response: type[ResponseT]
) -> Method[RequestT, ResponseT]:
    """One method with its message classes known to the type checker."""
    method = service.methods_by_name[name]
    if (method.input_type, method.output_type) != (request.DESCRIPTOR, response.DESCRIPTOR):
        message = f"{service.full_name}/{name} is {method.input_type.full_name} to {method.output_type.full_name}"
        raise TypeError(message)
    return _method(method, request, response)


def service_handler(
    service: ServiceDescriptor, behaviours: Mapping[str, Callable[..., Any]]
) -> "grpc.GenericRpcHandler[Any, Any]":
    """A server's handler for the named methods; the others answer Unimplemented.

    A behaviour takes (request or request iterator, context); it is a coroutine function, or an async generator
    function when the method streams its responses.
    """
    methods = methods_of(service)
    if unknown := behaviours.keys() - methods.keys():
        message = f"{service.full_name} has no method {', '.join(sorted(unknown))}"
        raise TypeError(message)
    handlers = {name: _handler(methods[name], behaviour) for name, behaviour in behaviours.items()}
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def _method(
    method: MethodDescriptor, request: type[RequestT], response: type[ResponseT]
) -> Method[RequestT, ResponseT]:
    return Method(
        name=method.name,
        path=f"/{method.containing_service.full_name}/{method.name}",
        request=request,
        response=response,
        streams_requests=method.client_streaming,
        streams_responses=method.server_streaming,
    )


def _handler(method: Method[Message, Message], behaviour: Callable[..., Any]) -> "grpc.RpcMethodHandler[Any, Any]":
    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[method.streams_requests, method.streams_responses]
    return make(behaviour, method.request.FromString, method.response.SerializeToString)
