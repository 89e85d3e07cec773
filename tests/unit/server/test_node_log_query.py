from datetime import UTC, datetime

import pytest

from klet.api.times import Time
from klet.server.node_log_query import (
    NodeLogQuery,
    QueryRefusal,
    build_journal_arguments,
    parse_node_log_query,
    split_services,
    validate_node_log_query,
)

NOON = Time(2026, 1, 2, 12, tzinfo=UTC)
LATER = Time(2026, 1, 2, 13, tzinfo=UTC)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param({}, None, id="nothing that is known"),
        pytest.param({"other": ["x"], "sinceTime": [""]}, None, id="empty and unknown values"),
        pytest.param({"query": ["a", " ", "b"]}, NodeLogQuery(services=("a", "b")), id="blank ones are dropped"),
        pytest.param({"query": ["/a.log"]}, NodeLogQuery(files=("/a.log",)), id="a slash is a file"),
        pytest.param({"query": ["a\\b"]}, NodeLogQuery(files=("a\\b",)), id="so is a backslash"),
        pytest.param({"tailLines": ["5"]}, NodeLogQuery(lines=5), id="options alone"),
        pytest.param(
            {"query": ["a"], "sinceTime": ["2026-01-02T13:00:00+01:00"], "boot": ["-1"], "pattern": ["x"]},
            NodeLogQuery(services=("a",), since=NOON, boot=-1, pattern="x"),
            id="options",
        ),
        pytest.param(
            {"query": [" "]}, QueryRefusal(400, 'query: Invalid value: [" "]: may not be empty'), id="all are blank"
        ),
        pytest.param(
            {"sinceTime": ["x\ny"]},
            QueryRefusal(400, 'sinceTime: Invalid value: "x\\ny": invalid time format'),
            id="no time",
        ),
        pytest.param(
            {"boot": ["1x"], "tailLines": ["9" * 30]},
            QueryRefusal(
                400,
                '[boot: Invalid value: "1x": strconv.Atoi: parsing "1x": invalid syntax, '
                f'tailLines: Invalid value: "{"9" * 30}": strconv.Atoi: parsing "{"9" * 30}": invalid syntax]',
            ),
            id="no numbers",
        ),
    ],
)
def test_parse(values, expected):
    assert parse_node_log_query(values) == expected


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (NodeLogQuery(services=("kubelet", "a.b:c@d-e_1")), None),
        (NodeLogQuery(files=("/a/b.log",)), None),
        (NodeLogQuery(lines=1), "query: Required value: cannot be empty with options"),
        (NodeLogQuery(services=("a;id",)), 'query: Invalid value: "a;id": input contains unsupported characters'),
        (NodeLogQuery(services=("a\n",)), 'query: Invalid value: "a\\n": input contains unsupported characters'),
        (NodeLogQuery(services=("é",)), 'query: Invalid value: "é": input contains unsupported characters'),
        (NodeLogQuery(services=("a",) * 5), "query: Too many: 5: must have at most 4 items"),
        (
            NodeLogQuery(services=("a",), files=("/b",)),
            'query: Invalid value: ["/b", "a"]: cannot specify a file and service',
        ),
        (NodeLogQuery(files=("/a", "/b")), 'query: Invalid value: ["/a", "/b"]: cannot specify more than one file'),
        (NodeLogQuery(files=("/a",), boot=0), 'query: Invalid value: ["/a"]: cannot specify file with options'),
        (NodeLogQuery(files=("a/../../b",)), 'query: Invalid value: ["a/../../b"]: path escapes from parent'),
        (
            NodeLogQuery(services=("a",), since=LATER, until=NOON),
            'untilTime: Invalid value: "2026-01-02T12:00:00Z": must be after `sinceTime`',
        ),
        (NodeLogQuery(services=("a",), boot=1), "boot: Invalid value: 1: must be less than 1"),
        (
            NodeLogQuery(services=("a",), lines=100_001),
            "tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive",
        ),
        (
            NodeLogQuery(services=("a",), pattern="("),
            'pattern: Invalid value: "(": error parsing regexp: missing closing ): `(`',
        ),
    ],
)
def test_validate(query, problem):
    assert validate_node_log_query(query) == (None if problem is None else QueryRefusal(406, problem))


def test_long_values_are_refused_and_shown_cut():
    refusal = validate_node_log_query(NodeLogQuery(services=("s" * 300,), pattern="é" * 600))
    assert refusal.status == 406
    assert len(refusal.text) < 1000


def test_arguments_of_the_journal():
    query = NodeLogQuery(since=NOON, until=LATER, lines=3, pattern="-x y", boot=0)
    assert build_journal_arguments(query, ("a", "-b")) == (
        *("--utc", "--no-pager", "--output=short-precise"),
        *("--since=2026-01-02 12:00:00 UTC", "--until=2026-01-02 13:00:00 UTC", "--pager-end", "--lines=3"),
        *("--unit=a", "--unit=-b", "--grep=-x y", "--boot", "0"),
    )


def test_services_of_the_journal_are_its_units():
    assert split_services(("a", "b"), frozenset({"a.service", "xb.service"})) == (("a",), ("b",))


def test_years_of_four_digits():
    early = Time.of(datetime(1, 1, 1, tzinfo=UTC))
    assert "--since=" in build_journal_arguments(NodeLogQuery(since=early), ())[3]
