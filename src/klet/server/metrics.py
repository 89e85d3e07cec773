"""Metrics of the HTTP server: requests, and the results of health checks."""

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware
from msgspec import Struct

from klet.aio.clock import Clock
from klet.metrics import (
    DEFAULT_BOUNDS,
    STABLE,
    Counter,
    FewValues,
    Gauge,
    Histogram,
    Label,
    MetricRegistry,
)
from klet.server.endpoints import ENDPOINT_GROUPS
from klet.server.paths import label_path

_METHODS: Final = frozenset({"OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT"})
_PATHS: Final = frozenset(
    endpoint.label or group.label for group in ENDPOINT_GROUPS for endpoint in group.endpoints
) | {"stats", "logs"}
_LABELS: Final = (
    Label("method", _METHODS),
    Label("path", _PATHS),
    Label("server_type", frozenset({"readwrite", "readonly"})),
    Label("long_running", frozenset({"true", "false"})),
)
READ_WRITE: Final = "readwrite"
READ_ONLY: Final = "readonly"


class HttpMetrics(Struct, frozen=True, kw_only=True):
    """Requests to the kubelet API."""

    total: Counter
    duration: Histogram
    inflight: Gauge


class HealthMetrics(Struct, frozen=True, kw_only=True):
    """Results of health checks, one for each check of a request for all of them."""

    latest: Gauge
    total: Counter

    def note(self, name: str, *, is_well: bool) -> None:
        self.latest.set(1 if is_well else 0, name, "healthz")
        self.total.add(name, "healthz", "success" if is_well else "error")


def register_http(registry: MetricRegistry) -> HttpMetrics:
    return HttpMetrics(
        total=registry.counter("kubelet_http_requests_total", "Requests to the kubelet API.", _LABELS),
        duration=registry.histogram(
            "kubelet_http_requests_duration_seconds",
            "How long requests to the kubelet API took.",
            DEFAULT_BOUNDS,
            _LABELS,
        ),
        inflight=registry.gauge(
            "kubelet_http_inflight_requests", "Requests to the kubelet API that are being answered.", _LABELS
        ),
    )


def register_health(registry: MetricRegistry) -> HealthMetrics:
    name, kind = FewValues("name", 32), Label("type", frozenset({"healthz"}))
    return HealthMetrics(
        latest=registry.gauge(
            "kubernetes_healthcheck", "The latest result of a health check: 1 or 0.", (name, kind), promise=STABLE
        ),
        total=registry.counter(
            "kubernetes_healthchecks_total",
            "Results of health checks.",
            (name, kind, Label("status", frozenset({"success", "error"}))),
            promise=STABLE,
        ),
    )


def count_requests(metrics: HttpMetrics, *, server_type: str, clock: Clock) -> Middleware:
    """Return what counts every request, also those that are refused or for no path of the API."""

    @web.middleware
    async def count(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        path = label_path(request.path)
        labels = request.method, path.path, server_type, "true" if path.is_long_running else "false"
        metrics.total.add(*labels)
        metrics.inflight.add(*labels)
        began = clock.monotonic()
        try:
            return await handler(request)
        finally:
            metrics.inflight.add(*labels, by=-1)
            metrics.duration.observe(clock.monotonic() - began, *labels)

    return count
