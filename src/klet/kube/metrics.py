"""Metrics of requests to the API server (client-go's `rest_client_…`)."""

import math
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from klet.aio.clock import Clock
from klet.metrics import Counter, FewValues, Gauge, Histogram, Label, MetricRegistry

ERROR: Final = "<error>"
"""The code of a request that was not answered."""
_SECONDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)
_LOOKUPS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30)
_MINUTE: Final = 60
_DAY: Final = 86400
_LIVES: Final = (
    *(10 * _MINUTE, 30 * _MINUTE, 60 * _MINUTE, 240 * _MINUTE, _DAY, 7 * _DAY),
    *(30 * _DAY, 90 * _DAY, 180 * _DAY, 360 * _DAY, 4 * 360 * _DAY),
)
_BYTES: Final = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)
_VERBS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
_HOST: Final = FewValues("host", 8)
_CODE: Final = Label("code", frozenset({ERROR, *map(str, range(100, 600))}))


class CredentialPluginCall(StrEnum):
    """How a call of a credential plugin went, by client-go's names."""

    NO_ERROR = "no_error"
    EXECUTION_ERROR = "plugin_execution_error"
    NOT_FOUND = "plugin_not_found_error"
    INTERNAL_ERROR = "client_internal_error"


class CredentialPluginMetrics:
    """Credential plugins of kubeconfig files: their calls, and the client certificates that they return."""

    def __init__(self, *, registry: MetricRegistry, clock: Clock) -> None:
        self._clock = clock
        self._ends_at: datetime | None = None
        self._calls = registry.counter(
            "rest_client_exec_plugin_call_total",
            "Calls of credential plugins, by how they went and the exit code.",
            (
                Label("call_status", frozenset(CredentialPluginCall)),
                # -1: ended by a signal.
                Label("code", frozenset(map(str, range(-1, 256)))),
            ),
        )
        self._lives = registry.histogram(
            "rest_client_exec_plugin_certificate_rotation_age",
            "How long client certificates of credential plugins had lived when they were replaced.",
            _LIVES,
        )
        registry.computed(
            "rest_client_exec_plugin_ttl_seconds",
            "How long the client certificate of a credential plugin is valid; +Inf if there is none.",
            self._read_left,
        )

    def note_call(self, call: CredentialPluginCall, code: int) -> None:
        self._calls.add(call, str(code))

    def note_certificate(self, *, ends_at: datetime | None) -> None:
        """Note which certificate is used from now on; None if the plugin returns none."""
        self._ends_at = ends_at

    def note_replaced(self, *, began_at: datetime) -> None:
        """Note that a certificate has been replaced by another one."""
        self._lives.observe((self._clock.now() - began_at).total_seconds())

    def _read_left(self) -> Mapping[tuple[str, ...], float]:
        if self._ends_at is None:
            return {(): math.inf}
        return {(): (self._ends_at - self._clock.now()).total_seconds()}


class RestClientMetrics(Struct, frozen=True, kw_only=True):
    """Requests to the API server."""

    total: Counter
    duration: Histogram
    throttled: Histogram
    request_size: Histogram
    response_size: Histogram
    retries: Counter
    transports: Gauge
    transports_made: Counter
    lookups: Histogram
    plugins: CredentialPluginMetrics


def register_rest_client(registry: MetricRegistry, clock: Clock) -> RestClientMetrics:
    labels = Label("verb", _VERBS), _HOST
    return RestClientMetrics(
        total=registry.counter(
            "rest_client_requests_total",
            "Requests to the API server, by the code of the answer.",
            (_CODE, Label("method", _VERBS), _HOST),
        ),
        duration=registry.histogram(
            "rest_client_request_duration_seconds",
            "From a request to the API server to the head of its answer.",
            _SECONDS,
            labels,
        ),
        throttled=registry.histogram(
            "rest_client_rate_limiter_duration_seconds",
            "How long requests waited for the limits of kubeAPIQPS and eventRecordQPS.",
            _SECONDS,
            labels,
        ),
        request_size=registry.histogram(
            "rest_client_request_size_bytes", "Sizes of requests to the API server.", _BYTES, labels
        ),
        response_size=registry.histogram(
            "rest_client_response_size_bytes", "Sizes of answers of the API server, without watches.", _BYTES, labels
        ),
        retries=registry.counter(
            "rest_client_request_retries_total",
            "Requests that were sent again, by the code of the answer.",
            (_CODE, *labels),
        ),
        transports=registry.gauge("rest_client_transport_cache_entries", "Sets of connections to the API server."),
        transports_made=registry.counter(
            "rest_client_transport_create_calls_total",
            "Sets of connections that were made.",
            (Label("result", frozenset({"hit", "miss", "uncacheable"})),),
        ),
        lookups=registry.histogram(
            "rest_client_dns_resolution_duration_seconds",
            "How long it took to look up the address of the API server.",
            _LOOKUPS,
            (_HOST,),
        ),
        plugins=CredentialPluginMetrics(registry=registry, clock=clock),
    )


class RequestCounter:
    """Counts the requests to one server."""

    def __init__(self, *, metrics: RestClientMetrics, host: str) -> None:
        self._metrics = metrics
        self._host = host

    def note_head(self, method: str, code: int, *, seconds: float) -> None:
        self._metrics.total.add(str(code), method, self._host)
        self._metrics.duration.observe(seconds, method, self._host)

    def note_failure(self, method: str, *, seconds: float) -> None:
        self._metrics.total.add(ERROR, method, self._host)
        self._metrics.duration.observe(seconds, method, self._host)

    def note_sizes(self, method: str, *, sent: int, received: int) -> None:
        self._metrics.request_size.observe(sent, method, self._host)
        self._metrics.response_size.observe(received, method, self._host)

    def note_wait(self, method: str, seconds: float) -> None:
        self._metrics.throttled.observe(seconds, method, self._host)

    def note_retry(self, method: str, code: int) -> None:
        self._metrics.retries.add(str(code), method, self._host)

    def note_lookup(self, name: str, *, seconds: float) -> None:
        self._metrics.lookups.observe(seconds, name)

    def note_connections(self, change: int) -> None:
        """Note that a set of connections is made, or closed."""
        self._metrics.transports.add(by=change)
        if change > 0:
            self._metrics.transports_made.add("miss")
