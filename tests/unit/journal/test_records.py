import math
from datetime import UTC, datetime, timedelta

import pytest

from klet.api.klet_v1 import CauseRecord, encode
from klet.journal.answers import answer_record
from klet.journal.records import (
    CauseQuery,
    bound_finding,
    from_microseconds,
    next_number,
    select_causes,
    to_id,
    to_microseconds,
    to_number,
)
from klet.model.causes import Cause, CauseId, Finding, FindingSubject
from klet.model.reasons import Reason, read_reason
from klet.testing.strict import decode_strictly

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def cause(number: int, *, at: datetime = NOW, **subject: str) -> Cause:
    finding = Finding(subject=FindingSubject(**subject), decider="test", decision="Look")
    return Cause(id=to_id(number), parent=None, at=at, finding=finding)


def finding(**fields) -> Finding:
    return Finding(**{"subject": FindingSubject(), "decider": "test", "decision": "Look", **fields})


POD = cause(1, namespace="ns", name="web", uid="u1")
CONTAINER = cause(2, namespace="ns", name="web", uid="u1", container="app")
REPLACED = cause(3, namespace="ns", name="web", uid="u2")
NAMESAKE = cause(4, namespace="other", name="web", uid="u3")
NODE = cause(5, at=NOW + MINUTE)
ALL = (POD, CONTAINER, REPLACED, NAMESAKE, NODE)
NAMELESS = cause(6, at=NOW + MINUTE, uid="u4")
"""Of a pod of which only a directory was left."""


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param(CauseQuery(), ALL, id="everything"),
        pytest.param(
            CauseQuery(namespace="ns", name="web"), (POD, CONTAINER, REPLACED), id="a pod by name, with its containers"
        ),
        pytest.param(CauseQuery(name="web"), (POD, CONTAINER, REPLACED, NAMESAKE), id="a name in all namespaces"),
        pytest.param(CauseQuery(uid="u1"), (POD, CONTAINER), id="a pod by uid"),
        pytest.param(CauseQuery(uid="u1", container="app"), (CONTAINER,), id="one container"),
        pytest.param(CauseQuery(since=NOW + MINUTE), (NODE,), id="since an instant, itself included"),
        pytest.param(CauseQuery(is_node=True), (NODE,), id="the node itself"),
        pytest.param(CauseQuery(limit=2), (NAMESAKE, NODE), id="the newest two, oldest first"),
        pytest.param(CauseQuery(limit=0), (), id="none"),
        pytest.param(CauseQuery(name="absent"), (), id="no match"),
    ],
)
def test_select_causes(query, expected):
    assert select_causes(reversed(ALL), query) == expected


def test_a_pod_without_a_known_name_is_not_the_node():
    assert select_causes((NODE, NAMELESS), CauseQuery(is_node=True)) == (NODE,)


def test_a_record_that_comes_twice_is_selected_once():
    assert select_causes([POD, POD], CauseQuery()) == (POD,)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        pytest.param(0, to_microseconds(NOW), id="the first number is the instant"),
        pytest.param(
            to_microseconds(NOW), to_microseconds(NOW) + 1, id="a second one in the same instant is pushed on"
        ),
        pytest.param(2**52, 2**52 + 1, id="a clock that stepped back does not turn the order"),
    ],
)
def test_next_number(last, expected):
    assert next_number(last, at=NOW) == expected


def test_ids_compare_as_text():
    numbers = [1, 255, 256, to_microseconds(NOW), to_microseconds(NOW) + 1]
    ids = [to_id(number) for number in numbers]
    assert ids == sorted(ids)
    assert [to_number(cause_id) for cause_id in ids] == numbers
    assert to_number(CauseId("no id")) is None


def test_instants_survive():
    instant = NOW + timedelta(microseconds=123_456)
    assert from_microseconds(to_microseconds(instant)) == instant


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(finding(message="short"), finding(message="short"), id="a short message stays"),
        pytest.param(finding(message="x" * 2000), finding(message="x" * 1023 + "…"), id="a long message is cut"),
        pytest.param(finding(next="y" * 2000), finding(next="y" * 1023 + "…"), id="so is a long next"),
        pytest.param(finding(decider="d" * 999), finding(decider="d" * 255 + "…"), id="and a long decider"),
        pytest.param(
            finding(subject=FindingSubject(name="n" * 999)),
            finding(subject=FindingSubject(name="n" * 255 + "…")),
            id="and a long name",
        ),
        pytest.param(
            finding(message="two\nlines \x1b[31m"),
            finding(message="two lines \N{REPLACEMENT CHARACTER}[31m"),
            id="what a terminal would obey is taken out",
        ),
        pytest.param(
            finding(subject=FindingSubject(*("n" * 200 for _ in range(4)))),
            finding(subject=FindingSubject(*("n" * 200 for _ in range(4)))),
            id="words may be long together",
        ),
        pytest.param(
            finding(subject=FindingSubject(uid="a\x07b")),
            finding(subject=FindingSubject(uid="a\N{REPLACEMENT CHARACTER}b")),
            id="nor may a word make a terminal ring",
        ),
        pytest.param(
            finding(measurements={"k" * 999: "v" * 999}),
            finding(measurements={"k" * 255 + "…": "v" * 255 + "…"}),
            id="measurements are short",
        ),
        pytest.param(
            finding(measurements={str(n): n for n in range(100)}),
            finding(measurements={str(n): n for n in range(24)}),
            id="measurements are few",
        ),
        pytest.param(
            finding(measurements={"a": math.nan, "b": math.inf, "c": 1.5, "d": True}),
            finding(measurements={"a": "nan", "b": "inf", "c": 1.5, "d": True}),
            id="numbers that JSON lacks become words",
        ),
        pytest.param(
            finding(measurements={"a": 2**64, "b": 2**2000}),
            finding(measurements={"a": float(2**64), "b": "out of range"}),
            id="integers fit the store",
        ),
    ],
)
def test_bound_finding(given, expected):
    assert bound_finding(given) == expected


@pytest.mark.parametrize("word", [*map(str, Reason), "Teleported"])
def test_a_record_crosses_the_wire_unchanged(word):
    sent = Cause(
        id=to_id(7),
        parent=to_id(6),
        at=NOW,
        finding=finding(
            decision=read_reason(word),
            measurements={"n": 1, "f": 1.5, "b": True, "s": "x"},
            since=NOW - MINUTE,
            next="more",
        ),
    )
    read = decode_strictly(CauseRecord, encode(answer_record(sent)))
    assert read == answer_record(sent)
    assert (read.id, read.parent, read.at, read.decision) == (sent.id, sent.parent, NOW, word)
    assert (dict(read.measurements), read.since, read.next) == (sent.finding.measurements, NOW - MINUTE, "more")
