"""docs/security.md is true: no attack without a test that there is, or an issue that owns it; no test without a row."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "security.md"
HERE = Path(__file__).relative_to(ROOT)
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::((?:Test\w+::)?\w+))?`")
OWNER = re.compile(r"issue (\d+)")
THIS_SUITE = 13
GAP = re.compile(r"\b(missing|not built yet|not exist yet|so far|does not check yet|is left to|to be refused)\b")
"""How the middle column says that something is left to do."""
NEVER_RUN = {"skip", "xfail"}


def rows():
    """The cells of each row of each table."""
    lines = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("|")]
    split = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in split if row[0] not in {"attack", "---"}]


def functions_of(file):
    """The functions of a module, and those of its classes as `Class::function`."""
    parts = ast.parse(file.read_text()).body
    groups = {"": parts} | {f"{part.name}::": part.body for part in parts if isinstance(part, ast.ClassDef)}
    return {
        f"{prefix}{part.name}": part
        for prefix, body in groups.items()
        for part in body
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_there_are_rows():
    assert len(rows()) > 30
    assert all(len(row) == 3 and all(row) for row in rows())


def last(name):
    return name.rpartition("::")[2]


def never_runs(function):
    """Whether a test is marked so that it never runs, or may fail."""
    marks = [mark.func if isinstance(mark, ast.Call) else mark for mark in function.decorator_list]
    return any(isinstance(mark, ast.Attribute) and mark.attr in NEVER_RUN for mark in marks)


each_row = pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:60])


@each_row
def test_a_row_names_nothing_but_tests_and_owners(row):
    """A name that is misspelt must not pass for none."""
    named = [each.strip() for each in row[2].split(",")]
    assert all(TEST.fullmatch(each) or OWNER.fullmatch(each) for each in named)
    owners = [int(number) for number in OWNER.findall(row[2])]
    assert THIS_SUITE not in owners, "what this suite leaves to itself is left to nobody"


@each_row
def test_a_row_names_tests_that_there_are_and_run(row):
    for path, function in TEST.findall(row[2]):
        assert (ROOT / path).is_file(), path
        tests = functions_of(ROOT / path)
        named = [tests[function]] if function else [tests[name] for name in tests if last(name).startswith("test_")]
        assert named, path
        assert last(function).startswith("test_") or not function
        assert not any(never_runs(each) for each in named), (path, function)


@each_row
def test_what_is_left_to_do_has_an_owner(row):
    assert TEST.search(row[2]) or OWNER.search(row[2])
    assert OWNER.search(row[2]) or not GAP.search(row[1])


def test_every_module_of_attacks_has_a_row():
    named = {path for row in rows() for path, _ in TEST.findall(row[2])}
    there = {str(file.relative_to(ROOT)) for file in Path(__file__).parent.rglob("test_*.py")}
    assert there - named == {str(HERE)}


def test_the_documents_lead_to_one_another():
    links = {
        "README.md": ("SECURITY.md", "docs/threat-model.md", "docs/security.md"),
        "SECURITY.md": ("docs/threat-model.md", "docs/security.md"),
        "docs/security.md": ("threat-model.md", "../SECURITY.md"),
        "docs/threat-model.md": ("security.md", "../SECURITY.md"),
    }
    for document, targets in links.items():
        text = (ROOT / document).read_text()
        for target in targets:
            assert f"]({target})" in text, (document, target)
            assert ((ROOT / document).parent / target).is_file()
