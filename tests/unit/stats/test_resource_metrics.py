"""The series of `/metrics/resource`, read back with Prometheus' own parser and compared with upstream's list."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from klet.api.stats import (
    ContainerStats,
    CPUStats,
    MemoryStats,
    NodeStats,
    PodReference,
    PodStats,
    Summary,
    SwapStats,
)
from klet.stats.resource_metrics import write_resource

UPSTREAM = json.loads((Path(__file__).parents[2] / "data/upstream_metrics.json").read_text())["/metrics/resource"]
AT = datetime(2030, 1, 1, 0, 0, 5, 123999, tzinfo=UTC)
USE = {
    "cpu": CPUStats(time=AT, usage_core_nano_seconds=2_500_000_000),
    "memory": MemoryStats(time=AT, working_set_bytes=100),
    "swap": SwapStats(time=AT, swap_available_bytes=30, swap_usage_bytes=12),
}
MAIN = ContainerStats(name="main", start_time=AT, **USE)
POD = PodStats(pod_ref=PodReference(name="web", namespace="ns", uid="u"), start_time=AT, containers=(MAIN,), **USE)
SUMMARY = Summary(node=NodeStats(node_name="n", start_time=AT, **USE), pods=(POD,))


def text_of(summary):
    return b"".join(write_resource(summary)).decode()


def values_of(summary):
    families = text_string_to_metric_families(text_of(summary))
    return {sample.name: sample.value for family in families for sample in family.samples}


def with_container(**changes):
    return replace(SUMMARY, pods=(replace(POD, containers=(replace(MAIN, **changes),)),))


def test_every_family_of_upstream_is_there_with_its_type_its_labels_and_its_timestamp():
    text = text_of(SUMMARY)
    types = dict(line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE"))
    assert types == {name: about["type"] for name, about in UPSTREAM.items()}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            about = UPSTREAM[sample.name]
            assert (sample.name, sorted(sample.labels)) == (sample.name, about["labels"])
            assert (sample.name, sample.timestamp is not None) == (sample.name, about["timestamp"])


def test_values_and_timestamps():
    labels = '{container="main",namespace="ns",pod="web"}'
    lines = text_of(SUMMARY).splitlines()
    assert f"container_cpu_usage_seconds_total{labels} 2.5 1893456005123" in lines
    assert f"container_memory_working_set_bytes{labels} 100 1893456005123" in lines
    assert f"container_swap_limit_bytes{labels} 42 1893456005123" in lines
    assert f"container_start_time_seconds{labels} 1893456005.123999" in lines
    assert 'pod_swap_usage_bytes{namespace="ns",pod="web"} 12 1893456005123' in lines
    assert "node_cpu_usage_seconds_total 2.5 1893456005123" in lines
    assert "resource_scrape_error 0" in lines


def test_a_failure_shows_nothing_else():
    assert values_of(None) == {"resource_scrape_error": 1}


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        pytest.param({"start_time": None}, {"container_start_time_seconds"}, id="no start"),
        pytest.param({"start_time": datetime(1970, 1, 1, tzinfo=UTC)}, {"container_start_time_seconds"}, id="1970"),
        pytest.param({"cpu": None}, {"container_cpu_usage_seconds_total"}, id="no CPU"),
        pytest.param({"cpu": CPUStats(time=AT)}, {"container_cpu_usage_seconds_total"}, id="no CPU time"),
        pytest.param({"memory": MemoryStats(time=AT)}, {"container_memory_working_set_bytes"}, id="no working set"),
        pytest.param({"swap": None}, {"container_swap_limit_bytes", "container_swap_usage_bytes"}, id="no swap"),
        pytest.param(
            {"swap": SwapStats(time=AT, swap_usage_bytes=1)}, {"container_swap_limit_bytes"}, id="no limit of swap"
        ),
    ],
)
def test_what_is_not_known_is_left_out(changes, missing):
    assert set(UPSTREAM) - set(values_of(with_container(**changes))) == missing
