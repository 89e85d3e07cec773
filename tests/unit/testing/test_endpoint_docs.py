"""The tables of paths in the documentation."""

from pathlib import Path

import pytest

from klet.testing.endpoint_docs import write_tables

PAGE = Path(__file__).parents[3] / "docs" / "kubelet-api.md"


def test_the_page_is_up_to_date():
    text = PAGE.read_text()
    assert write_tables(text) == text, "run scripts/generate-endpoints"


def test_what_stands_between_the_marks_is_replaced():
    text = PAGE.read_text()
    stale = text.replace("| `/pods`, `/pods/` | GET |", "| `/pods` | POST |")
    assert stale != text
    assert write_tables(stale) == text


def test_a_page_without_its_marks_is_an_error():
    with pytest.raises(ValueError, match="marks of paths do not stand in the text once each"):
        write_tables("nothing")
