import pytest
from hypothesis import given
from hypothesis import strategies as st

from klet.api.meta import LabelSelector, LabelSelectorRequirement
from klet.api.selectors import (
    EVERYTHING,
    NOTHING,
    Operator,
    Requirement,
    Selector,
    SelectorError,
    label_selector,
    parse_int64,
    parse_label_selector,
)

LABELS = {"app": "web", "tier": "front", "size": "12", "empty": "", "in": "x"}


@pytest.mark.parametrize(
    ("text", "matches", "written"),
    [
        ("", True, ""),
        ("  ", True, ""),
        ("app", True, "app"),
        ("!app", False, "!app"),
        ("! missing", True, "!missing"),
        ("app=web", True, "app=web"),
        ("app == web", True, "app==web"),
        ("app=db", False, "app=db"),
        ("empty=", True, "empty="),
        ("empty=,app", True, "app,empty="),
        ("missing=", False, "missing="),
        ("app!=web", False, "app!=web"),
        ("missing!=web", True, "missing!=web"),
        ("app in (web,db)", True, "app in (db,web)"),
        ("app in (db)", False, "app in (db)"),
        ("empty in ()", True, "empty in ()"),
        ("empty in (,a)", True, "empty in (,a)"),
        ("empty in (a,)", True, "empty in (,a)"),
        ("empty in (a,,b)", True, "empty in (,a,b)"),
        ("app notin (db)", True, "app notin (db)"),
        ("missing notin (db)", True, "missing notin (db)"),
        ("app notin (web)", False, "app notin (web)"),
        ("size>11", True, "size>11"),
        ("size<12", False, "size<12"),
        ("app>1", False, "app>1"),
        ("missing>1", False, "missing>1"),
        ("tier=front,app in (web),!missing", True, "app in (web),!missing,tier=front"),
        ("in in (in,x)", True, "in in (in,x)"),
        ("in=x", True, "in=x"),
        ("example.com/key=v", False, "example.com/key=v"),
    ],
)
def test_parse_label_selector(text, matches, written):
    selector = parse_label_selector(text)
    assert selector.matches(LABELS) is matches
    assert str(selector) == written


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!=a", "found '!=', expected: !, identifier, or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a)", "unable to parse requirement: found ')', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a==(", "unable to parse requirement: found '(', expected: identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a in (b,=", "unable to parse requirement: found '=', expected: ',', or identifier"),
        (
            "a>x",
            (
                'unable to parse requirement: values[0]: Invalid value: "x": '
                "for 'Gt', 'Lt' operators, the value must be an integer"
            ),
        ),
    ],
)
def test_a_malformed_selector_is_refused_in_the_words_of_upstream(text, message):
    with pytest.raises(SelectorError) as caught:
        parse_label_selector(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        ("-a=b", 'unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of'),
        ("a=-b", 'unable to parse requirement: values[0][a]: Invalid value: "-b": a valid label must be'),
    ],
)
def test_keys_and_values_must_be_those_of_labels(text, beginning):
    with pytest.raises(SelectorError) as caught:
        parse_label_selector(text)
    assert str(caught.value).startswith(beginning)


def expression(key, operator, *values):
    return LabelSelector(match_expressions=(LabelSelectorRequirement(key=key, operator=operator, values=values),))


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        pytest.param(None, False, id="no selector selects nothing"),
        pytest.param(LabelSelector(), True, id="an empty selector selects everything"),
        pytest.param(LabelSelector(match_labels={"app": "web"}), True, id="the label is there"),
        pytest.param(LabelSelector(match_labels={"app": "web", "x": "y"}), False, id="all labels must be there"),
        pytest.param(expression("app", "In", "web", "db"), True, id="in"),
        pytest.param(expression("app", "NotIn", "web"), False, id="not in"),
        pytest.param(expression("app", "Exists"), True, id="exists"),
        pytest.param(expression("app", "DoesNotExist"), False, id="does not exist"),
    ],
)
def test_label_selector(selector, matches):
    assert label_selector(selector).matches(LABELS) is matches


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        (expression("app", "Near", "x"), '"Near" is not a valid label selector operator'),
        (
            expression("app", "In"),
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            expression("app", "Exists", "x"),
            'values: Invalid value: ["x"]: values set must be empty for exists and does not exist',
        ),
    ],
)
def test_a_malformed_label_selector_is_refused(selector, message):
    with pytest.raises(SelectorError) as caught:
        label_selector(selector)
    assert str(caught.value) == message


def test_several_problems_are_reported_together():
    with pytest.raises(SelectorError, match=r"^\[key: Invalid value: .*, values: Invalid value: \[\]: .*\]$"):
        label_selector(expression("-", "In"))


def test_everything_and_nothing():
    assert EVERYTHING.matches({})
    assert not NOTHING.matches(LABELS)
    assert not Requirement("size", Operator.GREATER, ()).matches(LABELS)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5),
        ("-5", -5),
        ("+5", 5),
        ("007", 7),
        ("", None),
        ("1.0", None),
        (" 1", None),
        ("٣", None),
        (str(2**63), None),
    ],
)
def test_parse_int64(text, number):
    assert parse_int64(text) == number


names = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True).filter(lambda name: name not in ("in", "notin"))
requirements = st.one_of(
    st.builds(
        Requirement,
        names,
        st.sampled_from([Operator.IN, Operator.NOT_IN]),
        st.sets(names, min_size=1).map(lambda values: tuple(sorted(values))),
    ),
    st.builds(
        Requirement, names, st.sampled_from([Operator.EQUALS, Operator.NOT_EQUALS]), names.map(lambda value: (value,))
    ),
    st.builds(Requirement, names, st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
)


@given(st.lists(requirements, max_size=4))
def test_a_written_selector_reads_back(found):
    selector = Selector(tuple(sorted(found, key=lambda requirement: requirement.key)))
    assert parse_label_selector(str(selector)) == selector
