from datetime import timedelta

import pytest

from klet.config.gates import resolve_gates
from klet.config.observability import find_hidden_metrics_problems, find_logging_problems, find_tracing_problems
from klet.config.sections import LogFormatOptions, Logging, LogStreams, Tracing


@pytest.mark.parametrize(
    ("endpoint", "count"),
    [
        ("localhost:4317", 0),
        ("dns://localhost:4317", 0),
        ("dns:localhost", 0),
        ("unix:///run/otel.sock", 0),
        ("unix-abstract://otel", 0),
        ("http://localhost:4317", 1),
        ("//localhost", 1),
    ],
)
def test_tracing_endpoint(endpoint, count):
    assert len(list(find_tracing_problems(Tracing(endpoint=endpoint)))) == count


@pytest.mark.parametrize(("rate", "count"), [(None, 0), (0, 0), (1_000_000, 0), (-1, 1), (1_000_001, 1)])
def test_sampling_rate(rate, count):
    assert len(list(find_tracing_problems(Tracing(sampling_rate_per_million=rate)))) == count


def test_no_tracing_is_fine():
    assert list(find_tracing_problems(None)) == []


@pytest.mark.parametrize(("version", "count"), [("", 0), ("1.34", 0), ("1.35", 1), ("v1.34", 1)])
def test_hidden_metrics(version, count):
    assert len(list(find_hidden_metrics_problems(version))) == count


def test_alpha_options_are_fine_with_their_gate():
    options = LogFormatOptions(text=LogStreams(split_stream=True))
    logging = Logging(format="text", flush_frequency=timedelta(seconds=5), options=options)
    assert list(find_logging_problems(logging, resolve_gates({"LoggingAlphaOptions": True}))) == []
    assert len(list(find_logging_problems(logging, resolve_gates({})))) == 1
