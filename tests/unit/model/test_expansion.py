import pytest

from klet.model.expansion import expand, names_in


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("$(VAR)", "a", id="a known name"),
        pytest.param("$(OTHER)", "$(OTHER)", id="an unknown name stays"),
        pytest.param("$$(VAR)", "$(VAR)", id="two dollars are one, and no reference"),
        pytest.param("$$$(VAR)", "$a", id="a dollar before a reference"),
        pytest.param("$(VAR", "$(VAR", id="a reference that never ends"),
        pytest.param("foo$$", "foo$", id="two dollars at the end"),
        pytest.param("foo$", "foo$", id="a dollar at the end"),
        pytest.param("$x", "$x", id="a dollar before something else"),
        pytest.param("$()", "$()", id="no name"),
        pytest.param("$(NESTED)", "$(VAR)", id="values are not expanded again"),
        pytest.param("a$(VAR)b$(VAR)", "aaba", id="several references"),
    ],
)
def test_expand(text, want):
    assert expand(text, {"VAR": "a", "NESTED": "$(VAR)"}) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("plain", set(), id="none"),
        pytest.param("$(A)/$(B)/$(A)", {"A", "B"}, id="several"),
        pytest.param("$$(A) $(B", set(), id="what only looks like one"),
    ],
)
def test_names_in(text, want):
    assert names_in(text) == want
