"""What the kubelet does to a container while it runs: probes and lifecycle hooks (core/v1)."""

from klet.api.base import ApiObject, Int32, Int64, IntOrString, required


class ExecAction(ApiObject, frozen=True, kw_only=True):
    command: tuple[str, ...] = ()


class HTTPHeader(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)
    value: str = required(str)


class HTTPGetAction(ApiObject, frozen=True, kw_only=True):
    """An HTTP request to the container."""

    path: str = ""
    port: IntOrString = required(int)
    host: str = ""
    scheme: str = ""
    http_headers: tuple[HTTPHeader, ...] = ()


class TCPSocketAction(ApiObject, frozen=True, kw_only=True):
    port: IntOrString = required(int)
    host: str = ""


class GRPCAction(ApiObject, frozen=True, kw_only=True):
    port: Int32 = required(int)
    service: str | None = None


class SleepAction(ApiObject, frozen=True, kw_only=True):
    seconds: Int64 = required(int)


class Probe(ApiObject, frozen=True, kw_only=True):
    """A periodic check of a container."""

    initial_delay_seconds: Int32 = 0
    timeout_seconds: Int32 = 0
    period_seconds: Int32 = 0
    success_threshold: Int32 = 0
    failure_threshold: Int32 = 0
    termination_grace_period_seconds: Int64 | None = None
    exec: ExecAction | None = None
    grpc: GRPCAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None


class LifecycleHandler(ApiObject, frozen=True, kw_only=True):
    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(ApiObject, frozen=True, kw_only=True):
    """Hooks after the start and before the stop of a container."""

    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None
    stop_signal: str | None = None
