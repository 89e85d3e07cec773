"""Spans of a trace (OpenTelemetry), as parts see them. Without tracing there is no Tracer, and no part makes a span."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Protocol, TypeAlias

SpanAttributes: TypeAlias = Mapping[str, str | int]


class SpanKind(StrEnum):
    """What a span stands for."""

    INTERNAL = "internal"
    CLIENT = "client"
    SERVER = "server"


class Span(Protocol):
    """One operation, while it lasts."""

    def set(self, attributes: SpanAttributes) -> None: ...

    def add_event(self, name: str, attributes: SpanAttributes) -> None: ...

    def fail(self, message: str) -> None:
        """Mark the operation as failed."""
        ...

    def record_error(self, error: BaseException) -> None:
        """Mark the operation as failed with this error."""
        ...

    def headers(self) -> Mapping[str, str]:
        """Return what carries the trace to another process (W3C trace context and baggage)."""
        ...

    def end(self) -> None: ...


class Tracer(Protocol):
    """Makes spans. `scope` is the name of the instrumentation, upstream's where it has one."""

    def span(
        self,
        name: str,
        *,
        scope: str,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: SpanAttributes = ...,
        is_root: bool = False,
    ) -> AbstractContextManager[Span]:
        """Return a span for a block: what is traced inside becomes its child. A root has no parent."""
        ...

    def start(self, name: str, *, scope: str, kind: SpanKind, attributes: SpanAttributes) -> Span:
        """Return a child of the span of this block, which ends when `end` is called."""
        ...
