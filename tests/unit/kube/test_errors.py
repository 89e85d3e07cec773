"""Which error a refusal of the API server is."""

import pytest

from klet.api.meta import Status, StatusCause, StatusDetails
from klet.kube.errors import ApiError, Expired, NotFound, TryLater, api_error

TOO_LARGE = StatusDetails(causes=(StatusCause(reason="ResourceVersionTooLarge", message="Too large resource version"),))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(Status(code=404, reason="NotFound"), NotFound, id="by its reason"),
        pytest.param(Status(code=404), NotFound, id="by its code, without a reason"),
        pytest.param(Status(code=410, reason="Gone"), Expired, id="a version that is too old"),
        pytest.param(Status(code=504, reason="Timeout"), TryLater, id="too slow"),
        pytest.param(
            Status(code=504, reason="Timeout", details=TOO_LARGE), Expired, id="a version that it has not had yet"
        ),
        pytest.param(Status(code=418, reason="Teapot"), ApiError, id="something else"),
    ],
)
def test_what_a_refusal_is(status, expected):
    assert type(api_error(status)) is expected
