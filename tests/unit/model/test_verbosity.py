"""klog's levels on the scale of Python's logging."""

import logging

import pytest

from klet.model.verbosity import CHANGES, HIGHEST, REQUEST_STARTS, REQUESTS, STEADY, TRACE, level_of, verbosity_of


@pytest.mark.parametrize(
    ("level", "verbosity"),
    [
        pytest.param(logging.CRITICAL, 0, id="what ends the agent is always shown"),
        pytest.param(logging.ERROR, 0, id="errors are always shown"),
        pytest.param(logging.WARNING, 0, id="warnings are always shown"),
        pytest.param(logging.INFO, 0, id="information is always shown"),
        pytest.param(STEADY, 2, id="the normal course"),
        pytest.param(CHANGES, 3, id="changes"),
        pytest.param(logging.DEBUG, 4, id="debugging"),
        pytest.param(TRACE, 5, id="tracing"),
        pytest.param(REQUESTS, 6, id="requests"),
        pytest.param(REQUEST_STARTS, 7, id="requests as they are sent"),
        pytest.param(15, 4, id="a level between those of klog counts as debugging"),
    ],
)
def test_from_which_verbosity_on_a_line_is_shown(level, verbosity):
    assert verbosity_of(level) == verbosity


def test_every_verbosity_has_a_level_of_its_own_in_order():
    levels = [level_of(verbosity) for verbosity in range(HIGHEST + 1)]
    assert levels == sorted({*levels}, reverse=True)
    assert [verbosity_of(level) for level in levels] == list(range(HIGHEST + 1))
    assert min(levels) > logging.NOTSET


@pytest.mark.parametrize(("verbosity", "same_as"), [(-1, 0), (11, 10), (2**31 - 1, 10)])
def test_beyond_the_ends_nothing_changes(verbosity, same_as):
    assert level_of(verbosity) == level_of(same_as)
