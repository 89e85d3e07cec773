"""The schema of the agent's own API."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import fields

from klet.api.codec import decode
from klet.api.klet_v1 import (
    CauseRecord,
    ExplainedCondition,
    Explanation,
    NodeExplanation,
    PodState,
    TimelineStep,
    WaitingFor,
    Why,
    encode,
    encode_readable,
    field_names,
)
from klet.api.times import Time

DOCUMENTED = (Explanation, NodeExplanation, ExplainedCondition, PodState, TimelineStep, WaitingFor, Why)
AT = datetime(2030, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)


@pytest.mark.parametrize("cls", DOCUMENTED)
def test_every_field_is_documented(cls):
    text = (Path(__file__).parents[3] / "docs" / "explain.md").read_text()
    assert [each.encode_name for each in fields(cls) if f"`{each.encode_name}`" not in text.replace("[]`", "`")] == []


def test_every_field_is_written_and_instants_have_their_offset():
    assert encode(CauseRecord(at=AT, message="ä", since=Time.of(AT))) == (
        b'{"id": "", "parent": null, "at": "2030-01-01T12:00:00.250000+00:00", '
        b'"subject": {"namespace": "", "name": "", "uid": "", "container": ""}, "decider": "", "decision": "", '
        b'"message": "\\u00e4", "measurements": {}, "since": "2030-01-01T12:00:00+00:00", "next": "", "nextAt": null}'
    )


def test_people_read_every_character():
    assert '"ä"'.encode() in encode_readable(CauseRecord(at=AT, message="ä"))


def test_what_is_written_is_read():
    record = CauseRecord(at=AT, measurements={"a": 1, "b": 1.0, "c": True, "d": "x"}, next_at=AT)
    read = decode(CauseRecord, encode(record))
    assert read == record
    assert [type(value) for value in read.measurements.values()] == [int, float, bool, str]


def test_fields_are_named_as_they_are_written():
    assert field_names(Explanation) == "pod, now, state, summary, why, waitingFor, timeline"
