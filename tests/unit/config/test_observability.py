from datetime import timedelta

import pytest

from klet.api.quantity import Quantity
from klet.config.gates import resolve_gates
from klet.config.observability import find_hidden_metrics_problems, find_logging_problems, find_tracing_problems
from klet.config.sections import LogFormatOptions, Logging, LogStreams, Tracing, VModuleItem


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


def valid(**fields):
    return Logging(**{"format": "text", "flush_frequency": timedelta(seconds=5)} | fields)


SPLIT = LogStreams(split_stream=True)
BUFFERED = LogStreams(info_buffer_size=Quantity.of(1024))


@pytest.mark.parametrize(
    ("logging", "gates", "problems"),
    [
        pytest.param(valid(), {}, [], id="the defaults"),
        pytest.param(valid(format="json"), {}, [], id="JSON"),
        pytest.param(valid(format="json"), {"LoggingBetaOptions": False},
                     ["logging.format: Forbidden: Log format json is disabled, see LoggingBetaOptions feature"],
                     id="JSON without the gate of beta options"),
        pytest.param(valid(), {"LoggingBetaOptions": False, "ContextualLogging": False}, [],
                     id="text needs no gate"),
        pytest.param(valid(format="xml", flush_frequency=timedelta()), {},
                     ['logging.flushFrequency: Invalid value: "0s": Must be greater than zero',
                      'logging.format: Invalid value: "xml": Unsupported log format'],
                     id="several problems in upstream's order"),
        pytest.param(valid(verbosity=2**31), {},
                     ["logging.verbosity: Invalid value: 2147483648: Must be <= 2147483647"],
                     id="too high a verbosity"),
        pytest.param(valid(format="json", vmodule=(VModuleItem(file_pattern="a", verbosity=1),)), {},
                     ["logging.vmodule: Forbidden: Only supported for text log format"], id="vmodule with JSON"),
        pytest.param(valid(vmodule=(VModuleItem(file_pattern="a", verbosity=1), VModuleItem(file_pattern="a=b"))), {},
                     ['logging.vmodule[1]: Invalid value: "a=b": File pattern must not contain equal sign or comma'],
                     id="a pattern with an equal sign"),
        pytest.param(valid(vmodule=(VModuleItem(verbosity=1),)), {},
                     ["logging.vmodule[0]: Required value: File pattern must not be empty"], id="an empty pattern"),
        pytest.param(valid(options=LogFormatOptions(text=SPLIT, json=BUFFERED)), {},
                     ["logging.options.text.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled",
                      "logging.options.json.infoBufferSize: Forbidden: Feature LoggingAlphaOptions is disabled"],
                     id="options of both formats are checked, whichever is used"),
        pytest.param(valid(options=LogFormatOptions(json=LogStreams(info_buffer_size=Quantity.of(0)))), {}, [],
                     id="a buffer of nothing is none"),
        pytest.param(valid(options=LogFormatOptions(text=SPLIT, json=BUFFERED)), {"LoggingAlphaOptions": True}, [],
                     id="options with their gate"),
    ],
)  # fmt: skip
def test_logging(logging, gates, problems):
    assert list(find_logging_problems(logging, resolve_gates(gates))) == problems


def test_only_the_previous_minor_may_show_its_hidden_metrics():
    [problem] = find_hidden_metrics_problems("1.33")
    assert problem == (
        "--show-hidden-metrics-for-version must be omitted or have the value '1.34'. "
        "Only the previous minor version is allowed"
    )
