from pathlib import Path

import msgspec
import pytest

from klet.testing.metrics_comparison.differences import (
    Acceptance,
    DifferenceKind,
    ReportedDifference,
    compare_recordings,
    judge_differences,
)
from klet.testing.metrics_comparison.recordings import CADVISOR, OWN, SUMMARY, Recording, Scrape
from klet.testing.metrics_comparison.shapes import generalize, values_of
from klet.testing.metrics_comparison.text_format import MalformedText, parse_text
from klet.testing.metrics_comparison.value_rules import Agreement, ValueRule, agrees

TEXT = """# HELP a_total Things.
# TYPE a_total counter
a_total{pod="x\\"y",id="/"} 3 1700000000000
# TYPE h histogram
h_bucket{le="+Inf",op="sync"} 2
h_sum{op="sync"} 0.5
h_count{op="sync"} 2
"""


def recording(route, body):
    scrape = Scrape({route: body})
    return Recording(scrape, scrape)


def test_families_types_labels_and_times_are_read():
    families = parse_text(TEXT)
    assert families["a_total"].samples[0].labels == (("id", "/"), ("pod", 'x"y'))
    assert families["a_total"].samples[0].milliseconds == 1700000000000
    assert families["h"].type == "histogram"
    assert families["h"].label_names() == {("op",)}


@pytest.mark.parametrize(
    "line", ["a{", 'a{b="c} 1', "a{b=c} 1", "a one", "a 1 2 3", "# TYPE a counter\n# TYPE a counter"]
)
def test_what_is_not_of_the_format_is_refused(line):
    with pytest.raises(MalformedText):
        parse_text(line)


@pytest.mark.parametrize(
    ("route", "theirs", "ours", "expected"),
    [
        pytest.param(OWN, "# TYPE a gauge\na 1\n", "", (DifferenceKind.MISSING_FAMILY, "a"), id="a family is missing"),
        pytest.param(OWN, "", "# TYPE a gauge\na 1\n", (DifferenceKind.ADDITIONAL_FAMILY, "a"), id="one is additional"),
        pytest.param(
            OWN, "# TYPE a gauge\na 1\n", "# TYPE a counter\na 1\n", (DifferenceKind.TYPE, "a"), id="another type"
        ),
        pytest.param(
            *(OWN, '# TYPE a gauge\na{b="1"} 1\n', '# TYPE a gauge\na{c="1"} 1\n', (DifferenceKind.LABELS, "a")),
            id="another label",
        ),
        pytest.param(
            OWN,
            "# TYPE a gauge\na 1 5\n",
            "# TYPE a gauge\na 1\n",
            (DifferenceKind.TIMES, "a"),
            id="no time of its own",
        ),
        pytest.param(
            CADVISOR,
            '# TYPE a gauge\na{b="1"} 1\na{b="2"} 1\n',
            '# TYPE a gauge\na{b="1"} 1\n',
            (DifferenceKind.MISSING_SERIES, "a{b=2}"),
            id="a series is missing",
        ),
        pytest.param(
            *(SUMMARY, '{"node":{"cpu":{"time":1}}}', "{}", (DifferenceKind.MISSING_KEY, "node.cpu.time")),
            id="a key is missing",
        ),
    ],
)
def test_compare_recordings(route, theirs, ours, expected):
    empty = '{"node":{}}' if route == SUMMARY else ""
    found = list(compare_recordings(recording(route, theirs or empty), recording(route, ours or empty)))
    assert (found[0].kind, found[0].subject) == expected
    assert {each.route for each in found} == {route}


def test_the_same_is_no_difference():
    assert list(compare_recordings(recording(OWN, TEXT), recording(OWN, TEXT))) == []


def test_paths_name_the_entries_of_lists():
    document = {
        "pods": [
            {"podRef": {"name": "web", "namespace": "default"}, "containers": [{"name": "main", "cpu": {"time": 1}}]}
        ]
    }
    path = "pods[default/web].containers[main].cpu.time"
    assert values_of(document)[path] == 1
    assert generalize(path) == "pods[].containers[].cpu.time"


def test_what_is_accepted_is_not_open_and_what_covers_nothing_is_named():
    found = [ReportedDifference(OWN, DifferenceKind.MISSING_FAMILY, name) for name in ("go_threads", "kubelet_x")]
    used, idle = (Acceptance(OWN, DifferenceKind.MISSING_FAMILY, pattern, "why") for pattern in ("go_*", "rust_*"))
    judged = judge_differences(found, [used, idle])
    assert [each.subject for each in judged.open] == ["kubelet_x"]
    assert judged.idle == (idle,)


@pytest.mark.parametrize(
    ("rule", "theirs", "ours", "expected"),
    [
        pytest.param(ValueRule("", Agreement.EQUAL), 1, 1.5, False, id="equal is equal"),
        pytest.param(ValueRule("", Agreement.NEAR), 100, 104, True, id="a few percent are near"),
        pytest.param(ValueRule("", Agreement.NEAR), 100, 106, False, id="more are not"),
        pytest.param(ValueRule("", Agreement.NEAR, slack=10), 1, 9, True, id="small values have slack"),
        pytest.param(ValueRule("", Agreement.RATE), 1.0, None, False, id="a rate that is unknown"),
    ],
)
def test_agrees(rule, theirs, ours, expected):
    assert agrees(rule, theirs, ours) is expected


def test_every_accepted_difference_has_a_reason(data_directory):
    accepted = msgspec.json.decode((data_directory / "accepted.json").read_bytes(), type=list[Acceptance])
    assert all(each.reason for each in accepted)


@pytest.fixture
def data_directory():

    return Path(__file__).parents[3] / "data/metrics"
