"""The text format of metrics, and which values labels may have."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from klet.metrics import (
    Deprecation,
    FewValues,
    Label,
    MetricRegistry,
    ObjectName,
    Promise,
    Stability,
    format_number,
)

METHOD = Label("method", frozenset({"GET", "POST"}))
POD = ObjectName("pod")


def lines(registry):
    return [line for line in registry.write().decode().splitlines() if not line.startswith("#")]


def test_a_counter_without_labels_begins_at_zero():
    registry = MetricRegistry()
    counter = registry.counter("evictions", "Pods that were evicted.")
    begin = b"# HELP evictions [ALPHA] Pods that were evicted.\n# TYPE evictions counter\n"
    assert registry.write() == begin + b"evictions 0\n"
    counter.add(by=2.5)
    assert registry.write() == begin + b"evictions 2.5\n"


def test_a_value_outside_its_set_makes_no_series_of_its_own():
    registry = MetricRegistry()
    requests = registry.counter("requests_total", "Requests.", (METHOD,))
    for method in ("GET", "GET", "BREW", 'X"\n', "POST", "BREW"):
        requests.add(method)
    assert lines(registry) == [
        'requests_total{method="GET"} 2',
        'requests_total{method="other"} 3',
        'requests_total{method="POST"} 1',
    ]


@pytest.mark.parametrize("kind", ["counter", "gauge", "histogram", "computed"])
def test_after_so_many_values_of_a_label_a_new_one_is_other(kind):
    registry, label = MetricRegistry(), (FewValues("handler", 2),)
    values = ["runc", "gvisor", "kata", "runc", "wasm"]
    match kind:
        case "counter":
            counter = registry.counter("runs", "Runs.", label)
            for value in values:
                counter.add(value)
        case "gauge":
            gauge = registry.gauge("runs", "Runs.", label)
            for value in values:
                gauge.add(value)
        case "histogram":
            histogram = registry.histogram("took", "Took.", (), label)
            for value in values:
                histogram.observe(1, value)
        case _:
            registry.computed(
                "runs", "Runs.", lambda: {("runc",): 2, ("gvisor",): 1, ("kata",): 1, ("wasm",): 1}, label
            )
    counts = {line.partition('handler="')[2].partition('"')[0]: line.rpartition(" ")[2] for line in lines(registry)}
    assert counts == {"runc": "2", "gvisor": "1", "other": "2"}


def test_a_metric_without_a_series_is_not_written():
    registry = MetricRegistry()
    registry.counter("requests_total", "Requests.", (METHOD,))
    registry.histogram("took", "Took.", (1,), (METHOD,))
    assert registry.write() == b""


def test_the_series_of_an_object_end_with_it():
    registry = MetricRegistry()
    probes = registry.counter("probes", "Probes.", (POD,))
    seconds = registry.histogram("seconds", "Seconds.", (1,), (POD,))
    size = registry.gauge("size", "Size.", (POD,))
    for name in ("a", "b"):
        probes.add(name)
        seconds.observe(2, name)
        size.set(3, name)
    for metric in (probes, seconds, size):
        metric.remove("a")
        metric.remove("never")
    assert len(lines(registry)) == 1 + 4 + 1
    assert not any('pod="a"' in line for line in lines(registry))
    probes.add("a")
    assert 'probes{pod="a"} 1' in lines(registry)


def test_a_computed_metric_is_read_when_it_is_written():
    registry, seen, calls = MetricRegistry(), {("GET",): 1.0}, []
    registry.computed("open", "Open requests.", lambda: seen, (METHOD,))
    registry.computed("used_total", "Used.", lambda: {(): 7}, kind="counter")
    registry.before_scrape(lambda: calls.append(1))
    seen["POST",] = float("inf")
    assert lines(registry) == ['open{method="GET"} 1', 'open{method="POST"} +Inf', "used_total 7"]
    assert b"# TYPE used_total counter\n" in registry.write()
    assert len(calls) == 2
    del seen["GET",]
    assert lines(registry) == ['open{method="POST"} +Inf', "used_total 7"]


def test_a_gauge_is_set_raised_and_lowered():
    registry = MetricRegistry()
    running = registry.gauge("running", "Running.")
    by_method = registry.gauge("inflight", "In flight.", (METHOD,))
    assert lines(registry) == ["running 0"]
    running.set(4)
    running.add(by=-1)
    by_method.add("GET")
    by_method.add("GET", by=-1)
    assert lines(registry) == ['inflight{method="GET"} 0', "running 3"]
    registry.reset()
    assert lines(registry) == ["running 0"]


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
    assert lines(registry) == [
        f'seconds_bucket{{method="GET",le="0.1"}} {buckets[0]}',
        f'seconds_bucket{{method="GET",le="0.5"}} {buckets[1]}',
        f'seconds_bucket{{method="GET",le="+Inf"}} {buckets[2]}',
        f'seconds_sum{{method="GET"}} {sum(measured):g}',
        f'seconds_count{{method="GET"}} {len(measured)}',
    ]


def test_a_histogram_without_labels_is_there_from_the_start():
    registry = MetricRegistry()
    registry.histogram("seconds", "How long.", (1,))
    assert lines(registry) == [
        'seconds_bucket{le="1"} 0',
        'seconds_bucket{le="+Inf"} 0',
        "seconds_sum 0",
        "seconds_count 0",
    ]


def test_metrics_are_sorted_by_name_and_registered_once():
    registry = MetricRegistry()
    registry.counter("b", "B.")
    registry.counter("a", "A.")
    assert lines(registry) == ["a 0", "b 0"]
    registry.counter("aa", "AA.")
    assert lines(registry) == ["a 0", "aa 0", "b 0"]
    with pytest.raises(ValueError, match="the metric a is registered already"):
        registry.counter("a", "A.")


def test_labels_are_sorted_and_their_values_escaped():
    registry = MetricRegistry()
    odd = 'a"b\\c\nd'
    counter = registry.counter("node", "The\nnode \\.", (ObjectName("node"), ObjectName("at")))
    counter.add(odd, "x")
    assert lines(registry) == [r'node{at="x",node="a\"b\\c\nd"} 1']
    (family,) = text_string_to_metric_families(registry.write().decode())
    assert family.documentation == "[ALPHA] The\nnode \\."
    assert family.samples[0].labels == {"node": odd, "at": "x"}


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (3.0, "3"),
        (0.25, "0.25"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
        (float("nan"), "NaN"),
        (float(1 << 64), "1.8446744073709552e+19"),
        (-5, "-5"),
    ],
)
def test_numbers_are_written_as_prometheus_reads_them(number, text):
    assert format_number(number) == text


def shown(since, stability, *, shows_hidden=False, version="v1.35.8"):
    registry = MetricRegistry(version=version, shows_hidden=shows_hidden)
    registry.counter("old_total", "Old.", promise=Promise(stability, Deprecation(since))).add()
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
    level = f"[{stability.name}] "
    assert shown(since, stability) == (level + text if text else "")
    assert shown(since, stability, shows_hidden=True) == level + (text or f"(Deprecated since {since}) Old.")


def test_every_kind_of_metric_can_be_hidden_and_counts_on():
    registry, gone = MetricRegistry(version="v1.35.8"), Promise(deprecation=Deprecation("1.34.0"))
    registry.counter("a", "A.", promise=gone).add()
    registry.computed("b", "B.", lambda: {(): 1.0}, promise=gone)
    registry.histogram("c", "C.", (1.0,), promise=gone).observe(1)
    registry.gauge("d", "D.", promise=gone).set(1)
    assert registry.write() == b""
    assert registry.hidden == 4
    with pytest.raises(ValueError, match="the metric a is registered already"):
        registry.counter("a", "A.")


def test_metrics_are_counted_by_stability_and_by_the_version_that_deprecated_them():
    registry = MetricRegistry(version="v1.35.8", shows_hidden=True)
    registry.counter("a", "A.")
    registry.counter("b", "B.", promise=Promise(Stability.BETA))
    registry.counter("c", "C.", promise=Promise(deprecation=Deprecation("1.34.0")))
    registry.counter("d", "Not upstream's own.", promise=None)
    assert registry.levels() == {("ALPHA", ""): 1, ("BETA", ""): 1, ("ALPHA", "1.34.0"): 1}
