import pytest

from klet.model.expansion import ExpansionError, expand, expand_all, names_in


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


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(["$(BIG)" * 100_000], id="one text with many references"),
        pytest.param(["$(BIG)"] * 100_000, id="many texts with one each"),
    ],
)
def test_what_comes_of_references_is_limited(texts):
    with pytest.raises(ExpansionError, match="too long after its references were replaced"):
        expand_all(texts, {"BIG": "x" * 100_000})


def test_texts_that_fit_are_expanded_together():
    assert expand_all(["$(A)", "b"], {"A": "a"}) == ["a", "b"]
