"""The registries of an agent, with what every one of them shows: the process, the build, the metrics themselves."""

import sys
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from klet.config.gates import KNOWN_GATES, FeatureGates, Maturity
from klet.host.process_usage import ProcessReader, ProcessUsage
from klet.metrics import (
    BETA,
    AgentMetrics,
    FewValues,
    Label,
    MetricRegistry,
    Reading,
)
from klet.version import KUBELET_VERSION, KUBERNETES_VERSION, parse_release

_STARTED: Final = "process_start_time_seconds"
_STARTED_TEXT: Final = "When the process started, in seconds since the epoch."


class _LatestUsage(Struct):
    """What the process used at the latest scrape."""

    usage: ProcessUsage


def open_metrics(*, architecture: str, shows_hidden: bool = False) -> AgentMetrics:
    """Return the registries of one agent, which run in this process."""
    reader = ProcessReader()
    latest = _LatestUsage(reader.read())
    metrics = AgentMetrics(
        agent=MetricRegistry(shows_hidden=shows_hidden),
        probes=MetricRegistry(shows_hidden=shows_hidden),
        slis=MetricRegistry(shows_hidden=shows_hidden),
        process_started=latest.usage.started,
    )
    _register_process(metrics.agent, latest, reader)
    for registry in (metrics.probes, metrics.slis):
        registry.computed(_STARTED, _STARTED_TEXT, lambda: {(): metrics.process_started}, promise=None)
    _register_build(metrics.agent, architecture)
    _register_own(metrics.agent)
    return metrics


def register_features(registry: MetricRegistry, gates: FeatureGates) -> None:
    """Register which features are enabled."""
    stages = {name: gate.stage.value for name, gate in KNOWN_GATES.items()}
    reading: Reading = {(name, stages[name]): float(value) for name, value in gates.values.items() if name in stages}
    labels = (
        Label("name", frozenset(stages)),
        Label("stage", frozenset(each.value for each in Maturity)),
    )
    registry.computed(
        "kubernetes_feature_enabled",
        "Whether a feature is enabled, by its stage.",
        lambda: reading,
        labels,
        promise=BETA,
    )


def register_node_name(registry: MetricRegistry, name: str) -> None:
    """Register the name of the node, and how many metrics there are."""
    registry.gauge("kubelet_node_name", "The name of the node; always 1.", (FewValues("node", 1),)).set(1, name)


def register_queues(registry: MetricRegistry, lengths: Mapping[str, Callable[[], int]]) -> None:
    """Register how much waits to be written to the API server."""
    registry.computed(
        "klet_queue_length",
        "What waits to be written to the API server.",
        lambda: {(name,): length() for name, length in lengths.items()},
        (Label("queue", frozenset(lengths)),),
        promise=None,
    )


def register_journal(registry: MetricRegistry, unwritten: Callable[[], int], dropped: Callable[[], int]) -> None:
    """Register what the journal has not on disk yet, and what it never will have."""
    registry.computed(
        "klet_journal_unwritten_records",
        "Records of the journal that wait to be written to its file.",
        lambda: {(): unwritten()},
        promise=None,
    )
    registry.computed(
        "klet_journal_dropped_records_total",
        "Records that the journal gave up because its file could not be written for too long.",
        lambda: {(): dropped()},
        kind="counter",
        promise=None,
    )


def _register_process(registry: MetricRegistry, latest: _LatestUsage, reader: ProcessReader) -> None:
    def refresh() -> None:
        latest.usage = reader.read()

    registry.before_scrape(refresh)
    shown = registry.computed
    shown(
        "process_cpu_seconds_total",
        "CPU time of the process, user and system, in seconds.",
        lambda: {(): latest.usage.cpu_seconds},
        kind="counter",
        promise=None,
    )
    shown(
        "process_resident_memory_bytes",
        "Memory of the process that is in RAM.",
        lambda: {(): latest.usage.resident_bytes},
        promise=None,
    )
    shown(
        "process_virtual_memory_bytes",
        "Address space of the process.",
        lambda: {(): latest.usage.virtual_bytes},
        promise=None,
    )
    shown(
        "process_virtual_memory_max_bytes",
        "Address space that the process may have.",
        lambda: {(): latest.usage.max_virtual_bytes},
        promise=None,
    )
    shown("process_open_fds", "Open file descriptors.", lambda: {(): latest.usage.open_files}, promise=None)
    shown(
        "process_max_fds",
        "File descriptors that the process may have open.",
        lambda: {(): latest.usage.max_open_files},
        promise=None,
    )
    shown(_STARTED, _STARTED_TEXT, lambda: {(): latest.usage.started}, promise=None)
    shown(
        "process_network_receive_bytes_total",
        "Bytes that the network namespace of the process received.",
        lambda: {(): latest.usage.received_bytes},
        kind="counter",
        promise=None,
    )
    shown(
        "process_network_transmit_bytes_total",
        "Bytes that the network namespace of the process sent.",
        lambda: {(): latest.usage.sent_bytes},
        kind="counter",
        promise=None,
    )


def _register_build(registry: MetricRegistry, architecture: str) -> None:
    """Register the version. What upstream says of Go, klet says of Python; a commit is not known."""
    major, minor = parse_release(KUBERNETES_VERSION)
    implementation = sys.implementation
    version = ".".join(map(str, implementation.version[:3]))
    facts = {
        "build_date": "",
        "compiler": implementation.name,
        "git_commit": "",
        "git_tree_state": "",
        "git_version": KUBELET_VERSION,
        "go_version": f"python{version}",
        "major": str(major),
        "minor": str(minor),
        "platform": f"linux/{architecture}",
    }
    labels = tuple(Label(name, frozenset({value})) for name, value in facts.items())
    about = "The version of the kubelet; always 1."
    registry.gauge("kubernetes_build_info", about, labels).set(1, *facts.values())


def _register_own(registry: MetricRegistry) -> None:
    """Register how many metrics there are."""
    registry.computed(
        "registered_metrics_total",
        "Metrics by stability, and by the version that deprecated them.",
        registry.levels,
        (FewValues("stability_level", 8), FewValues("deprecated_version", 64)),
        kind="counter",
        promise=BETA,
    )
    registry.computed(
        "hidden_metrics_total", "Metrics that are hidden.", lambda: {(): registry.hidden}, kind="counter", promise=BETA
    )
    registry.counter("disabled_metrics_total", "Metrics that are switched off.", promise=BETA)
