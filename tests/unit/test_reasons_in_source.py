"""Reasons are typed from where they are decided to where they are read; nobody reads a decision from a text.

mypy refuses a bare string as a decision. What it cannot see is looked for here, in the syntax of every module.
"""

import ast
from pathlib import Path

import pytest

import klet
from klet.model.reasons import EventType, Reason

SOURCE = Path(klet.__file__).parent
MODULES = sorted(path for path in SOURCE.rglob("*.py") if not path.name.endswith("_pb2.py"))
READERS = ("model/reasons.py", "journal/", "cli/", "events/", "testing/")
"""Where reasons are defined and read; all others take decisions."""
FOREIGN = (
    # What another program says in words alone is read where it comes in, and goes on as a type.
    "cri/errors.py",
    "host/kmsg.py",
    "runtime/quirks/",
    "runtime/reader.py",
    # What a decoder says of where it failed is reported in other words.
    "api/codec.py",
    "images/docker_config.py",
    "testing/",
)
TEXTS = frozenset({"message", "error", "decision"})
SEARCHES = frozenset(
    {"startswith", "endswith", "find", "rfind", "index", "count", "partition", "rpartition", "removeprefix"}
)
PATTERNS = frozenset({"search", "match", "fullmatch", "findall", "finditer"})


def place(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def is_text(node: ast.AST) -> bool:
    """Whether an expression is, by its name, a message, an error or the word of a decision."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in TEXTS
        case ast.Call(func=ast.Name(id="str"), args=[inner]):
            return is_text(inner)
        case _:
            return False


def is_word(node: ast.AST) -> bool:
    """A string, or a collection of them."""
    match node:
        case ast.Constant(value=str()):
            return True
        case ast.Tuple(elts=items) | ast.Set(elts=items) | ast.List(elts=items):
            return any(map(is_word, items))
        case _:
            return False


def searches_text(node: ast.AST) -> bool:
    match node:
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[right]):
            return is_text(right)
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in SEARCHES:
            return is_text(value)
        case ast.Call(func=ast.Attribute(attr=name), args=[*_, last]) if name in PATTERNS:
            return is_text(last)
        case _:
            return False


def names_decision_by_string(node: ast.AST) -> bool:
    match node:
        case ast.keyword(arg="decision", value=value):
            return is_word(value)
        case ast.Compare(left=ast.Attribute(attr="decision") | ast.Name(id="decision"), comparators=[right]):
            return is_word(right)
        case ast.Match(subject=ast.Attribute(attr="decision") | ast.Name(id="decision"), cases=cases):
            patterns = [each.pattern for each in cases]
            return any(isinstance(each, ast.MatchValue) and is_word(each.value) for each in patterns)
        case ast.Call(func=ast.Attribute(attr="record" | "of" | "newest_of"), args=[first, *_]):
            return is_word(first)
        case _:
            return False


class Survey:
    """What the syntax of every module shows: lines with strings and searches, and the reasons that it names."""

    def __init__(self) -> None:
        self.strings: list[str] = []
        self.searches: list[str] = []
        self.reasons: dict[str, list[Reason]] = {}

    def read(self, module: str, text: str) -> None:
        for node in ast.walk(ast.parse(text)):
            if names_decision_by_string(node):
                self.strings.append(f"{module}:{node.lineno}")
            elif searches_text(node):
                self.searches.append(f"{module}:{node.lineno}")
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reason":
                self.reasons.setdefault(module, []).append(Reason[node.attr])


@pytest.fixture(scope="module")
def survey():
    found = Survey()
    for path in MODULES:
        found.read(place(path), path.read_text())
    return found


def test_no_decision_is_named_by_a_string(survey):
    assert [line for line in survey.strings if not line.startswith("testing/fuzz/")] == []


def test_nothing_is_decided_by_the_text_of_a_message(survey):
    assert [line for line in survey.searches if not line.startswith(FOREIGN)] == []


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        pytest.param('"network" in error', True, id="a part of an error"),
        pytest.param('"network" not in str(error)', True, id="a part of what an error says"),
        pytest.param('cause.finding.message.startswith("Back-off")', True, id="how a message begins"),
        pytest.param('re.search("x", finding.message)', True, id="a pattern"),
        pytest.param("PATTERN.match(message)", True, id="a compiled pattern"),
        pytest.param('finding.decision.startswith("Failed")', True, id="a part of a decision's word"),
        pytest.param("name in errors", False, id="one of several errors"),
        pytest.param('" ".join(message.split())', False, id="only how it is shown"),
    ],
)
def test_the_search_for_searches(line, is_found):
    assert any(map(searches_text, ast.walk(ast.parse(line)))) == is_found


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        pytest.param('Finding(decision="Started")', True, id="made"),
        pytest.param('finding.decision == "Started"', True, id="compared"),
        pytest.param('finding.decision in {"Started", "Failed"}', True, id="looked for"),
        pytest.param('records.newest_of("Started")', True, id="asked for"),
        pytest.param('about.record("Started", "text")', True, id="recorded"),
        pytest.param('match finding.decision:\n case "Started":\n  pass', True, id="matched"),
        pytest.param("finding.decision == Reason.STARTED", False, id="typed"),
    ],
)
def test_the_search_for_strings(line, is_found):
    assert any(map(names_decision_by_string, ast.walk(ast.parse(line)))) == is_found


def test_every_reason_is_decided_somewhere(survey):
    producers = [named for module, named in survey.reasons.items() if not module.startswith(READERS)]
    decided = {reason.name for named in producers for reason in named}
    # The journal itself shows starts of the agent in the stories of pods that lived through them.
    assert {reason.name for reason in Reason} - decided == {Reason.AGENT_RESTARTED.name}


def test_every_rejection_of_admission_is_a_warning(survey):
    named = [reasons for module, reasons in survey.reasons.items() if module.startswith("admission/")]
    reasons = {reason for each in named for reason in each}
    assert reasons > {Reason.SYSCTL_FORBIDDEN, Reason.OUT_OF_CPU, Reason.NODE_AFFINITY}
    assert {reason.event_type for reason in reasons} == {EventType.WARNING}
