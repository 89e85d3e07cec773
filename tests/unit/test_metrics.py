"""The text format of metrics, and the closed sets of labels."""

import pytest

from klet.metrics import Deprecation, Label, MetricRegistry, Stability

METHOD = Label("method", frozenset({"GET", "POST"}))


def test_a_counter_without_labels_begins_at_zero():
    registry = MetricRegistry()
    counter = registry.counter("evictions", "Pods that were evicted.")
    assert registry.write() == b"# HELP evictions Pods that were evicted.\n# TYPE evictions counter\nevictions 0\n"
    counter.add(by=2.5)
    assert registry.write().endswith(b"evictions 2.5\n")


def test_a_value_outside_its_set_makes_no_series_of_its_own():
    registry = MetricRegistry()
    requests = registry.counter("requests_total", "Requests.", (METHOD,))
    for method in ("GET", "GET", "BREW", 'X"\n', "POST"):
        requests.add(method)
    lines = registry.write().decode().splitlines()[2:]
    assert lines == [
        'requests_total{method="GET"} 2',
        'requests_total{method="other"} 2',
        'requests_total{method="POST"} 1',
    ]


def test_a_metric_without_a_series_is_not_written():
    registry = MetricRegistry()
    registry.counter("requests_total", "Requests.", (METHOD,))
    assert registry.write() == b""


def test_a_gauge_is_read_when_it_is_written():
    registry, seen = MetricRegistry(), {("GET",): 1.0}
    registry.gauge("open", "Open requests.", lambda: seen, (METHOD,))
    seen["POST",] = float("inf")
    assert registry.write().decode().splitlines()[2:] == ['open{method="GET"} 1', 'open{method="POST"} +Inf']


@pytest.mark.parametrize(
    ("measured", "buckets"),
    [
        pytest.param([0.05, 0.1, 0.3, 7.0], [2, 3, 4], id="a bound belongs to its bucket"),
        pytest.param([9.0], [0, 0, 1], id="beyond the last bound"),
    ],
)
def test_buckets_of_a_histogram_add_up(measured, buckets):
    registry = MetricRegistry()
    seconds = registry.histogram("seconds", "How long.", (0.1, 0.5), (METHOD,))
    for value in measured:
        seconds.observe(value, "GET")
    assert registry.write().decode().splitlines()[2:] == [
        f'seconds_bucket{{method="GET",le="0.1"}} {buckets[0]}',
        f'seconds_bucket{{method="GET",le="0.5"}} {buckets[1]}',
        f'seconds_bucket{{method="GET",le="+Inf"}} {buckets[2]}',
        f'seconds_sum{{method="GET"}} {sum(measured):g}',
        f'seconds_count{{method="GET"}} {len(measured)}',
    ]


def test_metrics_are_sorted_by_name_and_registered_once():
    registry = MetricRegistry()
    registry.counter("b", "B.")
    registry.counter("a", "A.")
    assert [line for line in registry.write().decode().splitlines() if line[0] != "#"] == ["a 0", "b 0"]
    with pytest.raises(ValueError, match="the metric a is registered already"):
        registry.counter("a", "A.")


def test_label_values_are_escaped():
    registry = MetricRegistry()
    odd = 'a"b\\c\nd'
    registry.gauge("node", "The node.", lambda: {(odd,): 1}, (Label("node", frozenset({odd})),))
    assert registry.write().decode().splitlines()[2] == r'node{node="a\"b\\c\nd"} 1'


def shown(since, stability, *, shows_hidden=False, version="v1.35.8"):
    registry = MetricRegistry(version=version, shows_hidden=shows_hidden)
    registry.counter("old_total", "Old.", deprecation=Deprecation(since, stability)).add()
    return registry.write().decode().partition("\n")[0].removeprefix("# HELP old_total ")


@pytest.mark.parametrize(
    ("since", "stability", "text"),
    [
        pytest.param("1.36.0", Stability.ALPHA, "Old.", id="deprecated in a later release"),
        pytest.param("1.35.0", Stability.ALPHA, "", id="alpha is hidden at once"),
        pytest.param("1.30.0", Stability.ALPHA, "", id="alpha, long deprecated"),
        pytest.param("1.35.0", Stability.BETA, "(Deprecated since 1.35.0) Old.", id="beta is shown for one release"),
        pytest.param("1.34.0", Stability.BETA, "", id="and hidden in the next"),
        pytest.param("1.33.0", Stability.STABLE, "(Deprecated since 1.33.0) Old.", id="stable is shown for three"),
        pytest.param("1.32.0", Stability.STABLE, "", id="and hidden then"),
        pytest.param("0.99.0", Stability.STABLE, "", id="of an older major release"),
        pytest.param("2.0.0", Stability.ALPHA, "Old.", id="of a coming major release"),
    ],
)
def test_a_deprecated_metric_is_marked_then_hidden(since, stability, text):
    assert shown(since, stability) == text
    assert shown(since, stability, shows_hidden=True) == (text or f"(Deprecated since {since}) Old.")


def test_every_kind_of_metric_can_be_hidden_and_counts_on():
    registry, gone = MetricRegistry(version="v1.35.8"), Deprecation("1.34.0")
    registry.counter("a", "A.", deprecation=gone).add()
    registry.gauge("b", "B.", lambda: {(): 1.0}, deprecation=gone)
    registry.histogram("c", "C.", (1.0,), deprecation=gone).observe(1)
    assert registry.write() == b""
    with pytest.raises(ValueError, match="the metric a is registered already"):
        registry.counter("a", "A.")
