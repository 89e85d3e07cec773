"""Several errors in one line."""

import pytest

from klet.model.error_text import join_errors


@pytest.mark.parametrize(
    ("errors", "text"),
    [
        pytest.param(("a",), "a", id="one as it is"),
        pytest.param(("a", "b", "a"), "[a, b]", id="several in brackets, each once"),
        pytest.param(iter(("a", "a")), "a", id="one that is said twice is one"),
    ],
)
def test_join_errors(errors, text):
    assert join_errors(errors) == text
