import logging

import pytest

from klet.api.meta import Status
from klet.errors import KletError, level_for
from klet.kube.errors import Unreachable, api_error


def wrapped(error):
    outer = KletError("in other words")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("error", "level"),
    [
        pytest.param(Unreachable("refused"), logging.DEBUG, id="nobody answered"),
        pytest.param(wrapped(Unreachable("refused")), logging.DEBUG, id="nobody answered, as a part calls it"),
        pytest.param(api_error(Status(code=503)), logging.DEBUG, id="a balancer without a server"),
        pytest.param(api_error(Status(code=500)), logging.WARNING, id="a server that fails at this one"),
        pytest.param(api_error(Status(code=403)), logging.WARNING, id="a refusal"),
        pytest.param(wrapped(OSError()), logging.WARNING, id="another error below"),
        pytest.param(None, logging.WARNING, id="no error at all"),
    ],
)
def test_what_another_part_reports_is_logged_for_debugging_only(error, level):
    assert level_for(error) == level


def test_the_usual_level_may_be_another():
    assert level_for(KletError(), logging.ERROR) == logging.ERROR
