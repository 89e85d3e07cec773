"""Rules for logging, tracing and hidden metrics."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from klet.api.times import Duration
from klet.config.gates import FeatureGates
from klet.config.places import hide_credentials
from klet.config.sections import Logging, Tracing
from klet.version import KUBERNETES_VERSION, parse_release

LOG_FORMATS: Final = ("text", "json")
_MAJOR, _MINOR = parse_release(KUBERNETES_VERSION)
PREVIOUS_MINOR: Final = f"{_MAJOR}.{_MINOR - 1}"

_MAX_INT32: Final = 2**31 - 1
_MILLION: Final = 1_000_000
_SCHEMES: Final = ("dns", "unix", "unix-abstract")


def find_hidden_metrics_problems(version: str) -> Iterator[str]:
    if version not in ("", PREVIOUS_MINOR):
        yield (
            f"--show-hidden-metrics-for-version must be omitted or have the value '{PREVIOUS_MINOR}'. "
            "Only the previous minor version is allowed"
        )


def find_logging_problems(logging: Logging, gates: FeatureGates) -> Iterator[str]:
    if logging.flush_frequency <= timedelta():
        shown = Duration.of(logging.flush_frequency).wire()
        yield f'logging.flushFrequency: Invalid value: "{shown}": Must be greater than zero'
    if logging.format not in LOG_FORMATS:
        yield f'logging.format: Invalid value: "{logging.format}": Unsupported log format'
    elif logging.format == "json" and not gates.enabled("LoggingBetaOptions"):
        yield "logging.format: Forbidden: Log format json is disabled, see LoggingBetaOptions feature"
    if logging.verbosity > _MAX_INT32:
        yield f"logging.verbosity: Invalid value: {logging.verbosity}: Must be <= {_MAX_INT32}"
    yield from _vmodule_problems(logging)
    if not gates.enabled("LoggingAlphaOptions"):
        yield from _option_problems(logging)


def find_tracing_problems(tracing: Tracing | None) -> Iterator[str]:
    if tracing is None:
        return
    rate = tracing.sampling_rate_per_million
    if rate is not None and rate < 0:
        yield f"tracing.samplingRatePerMillion: Invalid value: {rate}: sampling rate must be positive"
    if rate is not None and rate > _MILLION:
        limit = "sampling rate per million must be less than or equal to one million"
        yield f"tracing.samplingRatePerMillion: Invalid value: {rate}: {limit}"
    if tracing.endpoint is not None:
        yield from _endpoint_problems(tracing.endpoint)


def _vmodule_problems(logging: Logging) -> Iterator[str]:
    if logging.vmodule and logging.format not in ("", "text"):
        yield "logging.vmodule: Forbidden: Only supported for text log format"
    for index, item in enumerate(logging.vmodule):
        where = f"logging.vmodule[{index}]"
        if not item.file_pattern:
            yield f"{where}: Required value: File pattern must not be empty"
        if set(item.file_pattern) & {"=", ","}:
            rule = "File pattern must not contain equal sign or comma"
            yield f'{where}: Invalid value: "{item.file_pattern}": {rule}'
        if item.verbosity > _MAX_INT32:
            yield f"{where}: Invalid value: {item.verbosity}: Must be <= {_MAX_INT32}"


def _option_problems(logging: Logging) -> Iterator[str]:
    for name, streams in (("text", logging.options.text), ("json", logging.options.json)):
        given = {"splitStream": streams.split_stream, "infoBufferSize": bool(streams.info_buffer_size)}
        for field, is_set in given.items():
            if is_set:
                yield f"logging.options.{name}.{field}: Forbidden: Feature LoggingAlphaOptions is disabled"


def _endpoint_problems(endpoint: str) -> Iterator[str]:
    scheme, found, _ = endpoint.partition("://")
    if not found:
        scheme = "" if "//" in endpoint else "dns"
    if scheme not in _SCHEMES:
        yield (
            f'tracing.endpoint: Invalid value: "{hide_credentials(endpoint)}": unsupported scheme: {scheme}.  '
            "Options are none, dns, unix, or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md"
        )
