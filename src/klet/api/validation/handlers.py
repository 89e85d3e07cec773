"""Rules for probes, lifecycle hooks and stop signals."""

from collections.abc import Iterator
from typing import Final

from klet.api.handlers import HTTPGetAction, Lifecycle, LifecycleHandler, Probe, SleepAction
from klet.api.validation import formats
from klet.api.validation.errors import FieldErrors, forbidden, invalid, invalid_each, not_supported, required
from klet.api.validation.fieldpath import FieldPath
from klet.api.validation.metadata import NOT_NEGATIVE

_SCHEMES: Final = ("HTTP", "HTTPS")
_NAMED: Final = (
    *("ABRT", "ALRM", "BUS", "CHLD", "CLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "IOT", "KILL", "PIPE", "POLL"),
    *("PROF", "PWR", "QUIT", "SEGV", "STKFLT", "STOP", "SYS", "TERM", "TRAP", "TSTP", "TTIN", "TTOU", "URG"),
    *("USR1", "USR2", "VTALRM", "WINCH", "XCPU", "XFSZ"),
)
_REAL_TIME: Final = (
    "RTMAX",
    *(f"RTMAX-{number}" for number in range(1, 15)),
    "RTMIN",
    *(f"RTMIN+{number}" for number in range(1, 16)),
)
LINUX_SIGNALS: Final = tuple(sorted(f"SIG{name}" for name in (*_NAMED, *_REAL_TIME)))
WINDOWS_SIGNALS: Final = ("SIGKILL", "SIGTERM")


def validate_liveness_probe(probe: Probe, path: FieldPath) -> FieldErrors:
    """Check a liveness or startup probe; both have the same rules."""
    yield from _probe(probe, path)
    if probe.success_threshold != 1:
        yield invalid(path.child("successThreshold"), probe.success_threshold, "must be 1")


def validate_readiness_probe(probe: Probe, path: FieldPath) -> FieldErrors:
    yield from _probe(probe, path)
    if (seconds := probe.termination_grace_period_seconds) is not None:
        message = "must not be set for readinessProbes"
        yield invalid(path.child("terminationGracePeriodSeconds"), seconds, message)


def validate_lifecycle(
    lifecycle: Lifecycle, grace_period: int | None, os_name: str | None, path: FieldPath
) -> FieldErrors:
    if lifecycle.post_start is not None:
        yield from _handler(lifecycle.post_start, grace_period, path.child("postStart"))
    if lifecycle.pre_stop is not None:
        yield from _handler(lifecycle.pre_stop, grace_period, path.child("preStop"))
    if lifecycle.stop_signal is not None:
        yield from validate_stop_signal(lifecycle.stop_signal, os_name, path.child("stopSignal"))


def _probe(probe: Probe, path: FieldPath) -> FieldErrors:
    yield from _handler(probe, None, path)
    for wire_name, number in (
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ):
        if number < 0:
            yield invalid(path.child(wire_name), number, NOT_NEGATIVE)
    if (seconds := probe.termination_grace_period_seconds) is not None and seconds <= 0:
        yield invalid(path.child("terminationGracePeriodSeconds"), seconds, "must be greater than 0")


def _handler(handler: Probe | LifecycleHandler, grace_period: int | None, path: FieldPath) -> FieldErrors:
    """Check the first action, and refuse further ones."""
    actions = _actions(handler, grace_period, path)
    first = next(actions, None)
    if first is None:
        yield required(path, "must specify a handler type")
        return
    yield from first[1]
    for wire_name, _ in actions:
        yield forbidden(path.child(wire_name), "may not specify more than 1 handler type")


def _actions(
    handler: Probe | LifecycleHandler, grace_period: int | None, path: FieldPath
) -> Iterator[tuple[str, FieldErrors]]:
    if handler.exec is not None:
        yield "exec", _exec(handler.exec.command, path.child("exec"))
    if handler.http_get is not None:
        yield "httpGet", _http_get(handler.http_get, path.child("httpGet"))
    if handler.tcp_socket is not None:
        yield "tcpSocket", _port(handler.tcp_socket.port, path.child("tcpSocket", "port"))
    if isinstance(handler, Probe):
        if handler.grpc is not None:
            yield "grpc", _port(handler.grpc.port, path.child("grpc", "port"))
    elif handler.sleep is not None:
        yield "sleep", _sleep(handler.sleep, grace_period, path.child("sleep"))


def _exec(command: tuple[str, ...], path: FieldPath) -> FieldErrors:
    if not command:
        yield required(path.child("command"))


def _http_get(action: HTTPGetAction, path: FieldPath) -> FieldErrors:
    if not action.path:
        yield required(path.child("path"))
    yield from _port(action.port, path.child("port"))
    if action.scheme not in _SCHEMES:
        yield not_supported(path.child("scheme"), action.scheme, _SCHEMES)
    for header in action.http_headers:
        yield from invalid_each(path.child("httpHeaders"), header.name, formats.http_header_name(header.name))


def _port(port: int | str, path: FieldPath) -> FieldErrors:
    messages = formats.port_number(port) if isinstance(port, int) else formats.port_name(port)
    yield from invalid_each(path, port, messages)


def _sleep(action: SleepAction, grace_period: int | None, path: FieldPath) -> FieldErrors:
    if grace_period is not None and not 0 <= action.seconds <= grace_period:
        message = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_period})"
        yield invalid(path, action.seconds, message)


def validate_stop_signal(signal: str, os_name: str | None, path: FieldPath) -> FieldErrors:
    if os_name is None:
        yield forbidden(path, "may not be set for containers with empty `spec.os.name`")
        return
    supported = WINDOWS_SIGNALS if os_name == "windows" else LINUX_SIGNALS
    if signal not in supported:
        yield not_supported(path, signal, supported)
