"""docs/security.md is true: no attack without a test that there is, or an issue that owns it; no test without a row."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "security.md"
HERE = Path(__file__).relative_to(ROOT)
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
OWNER = re.compile(r"\bissue \d+\b")


def rows():
    """The cells of each row of each table."""
    lines = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("|")]
    split = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in split if row[0] not in {"attack", "---"}]


def functions_of(file):
    parts = ast.parse(file.read_text()).body
    return {part.name for part in parts if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_there_are_rows():
    assert len(rows()) > 30
    assert all(len(row) == 3 and all(row) for row in rows())


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:60])
def test_a_row_names_tests_that_there_are_or_an_owner(row):
    named = TEST.findall(row[2])
    assert named or OWNER.search(row[2])
    for path, function in named:
        assert (ROOT / path).is_file(), path
        names = functions_of(ROOT / path)
        assert function in names if function else any(name.startswith("test_") for name in names), (path, function)


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
